"""A step that processes share, compiled in each: it learns what it does uncompiled, and compiles in all or in none.

Gradients that are averaged while the backward pass goes on are the means of all processes.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch._dynamo.utils import counters

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.extensions.distributed.training import compiled_step
from shunter.extensions.distributed.training.compiled_step import GradientBuckets
from tests.engine.synthetic import write_dataset
from tests.extensions.distributed.training.ranks import RATES, SPEC, curve, run, train_and_stop, train_here

pytest.importorskip("torchrec")
EAGER = Execution(threads=1, batch_size=97)  # shares of 49 and 48 samples, and a last batch that is not full
COMPILED = replace(EAGER, compiled=True)
EVEN = replace(COMPILED, batch_size=96)  # equal shares, of which all processes compile the same
STOPPED_AT = 13
PLAIN = replace(RATES, dense_optimizer="sgd")  # its step is the gradient itself
DROPPING = replace(SPEC, dropout=0.3)
RANKS, LAYERS, WIDTH = 2, 4, 5


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


def eager_and_compiled(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """The same training twice, and how many steps were compiled."""
    taken: list[int] = []
    step = compiled_step.CompiledSharedStep.__call__

    def counted(self: Any, *arguments: Any) -> Any:
        taken.append(1)
        return step(self, *arguments)

    compiled_step.CompiledSharedStep.__call__ = counted  # type: ignore[method-assign]
    found: dict[str, Any] = {"eager": train_here(dataset, folder / "eager", execution=EAGER, hyperparameters=PLAIN)}
    assert not taken
    found["compiled"] = train_here(dataset, folder / "compiled", execution=COMPILED, hyperparameters=PLAIN)
    return {**found, "taken": len(taken)}


def interrupted_and_not(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """A compiled training with dropout and Adam that is interrupted, and one that is not."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")  # with nothing of earlier tests
    dropping = {"spec": DROPPING, "execution": EVEN}
    before = counters["inductor"]["fxgraph_cache_miss"]
    found: dict[str, Any] = {"whole": train_here(dataset, folder / "whole", **dropping)}
    found["missed"] = counters["inductor"]["fxgraph_cache_miss"] - before
    train_and_stop(dataset, folder / "resumed", STOPPED_AT, **dropping)
    found["resumed"] = train_here(dataset, folder / "resumed", **dropping)
    return found


def without_a_compiler_in_one(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """The second process alone fails to compile."""
    if dist.get_rank() == 1:
        compiled_step.torch.compile = _broken  # type: ignore[attr-defined]
    return {
        "compiled": train_here(dataset, folder / "compiled", execution=COMPILED),
        "eager": train_here(dataset, folder / "eager", execution=EAGER),
    }


def _broken(*_: Any, **__: Any) -> Any:
    def fail(*_: Any) -> None:
        raise RuntimeError("no such compiler")

    return fail


@pytest.mark.slow
@pytest.mark.long
def test_it_learns_what_it_does_uncompiled(dataset: Dataset, tmp_path: Path) -> None:
    full = dataset.splits["train"].rows // EAGER.batch_size
    for rank in run(2, tmp_path, eager_and_compiled, dataset, tmp_path):
        assert rank["taken"] == len(rank["eager"]["history"]) * full
        assert curve(rank["compiled"]["history"]) == pytest.approx(curve(rank["eager"]["history"]), rel=1e-4)
        for name, value in rank["compiled"]["layers"].items():
            torch.testing.assert_close(value, rank["eager"]["layers"][name], rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_it_resumes_bit_by_bit_and_only_one_process_compiles(dataset: Dataset, tmp_path: Path) -> None:
    ranks = run(2, tmp_path, interrupted_and_not, dataset, tmp_path)
    for rank in ranks:
        assert curve(rank["resumed"]["history"]) == curve(rank["whole"]["history"])
        for name, value in rank["resumed"]["layers"].items():
            assert torch.equal(value, rank["whole"]["layers"][name])
    assert ranks[0]["missed"] > 0
    assert ranks[1]["missed"] == 0, "it finds what the first has compiled"


@pytest.mark.long
def test_where_it_fails_to_compile_in_one_process_none_compiles(dataset: Dataset, tmp_path: Path) -> None:
    for rank in run(2, tmp_path, without_a_compiler_in_one, dataset, tmp_path):
        assert curve(rank["compiled"]["history"]) == curve(rank["eager"]["history"])


class Some(nn.Module):
    """Linear layers of which some steps leave out the second."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, inputs: Tensor, *, every: bool) -> Tensor:
        for number, layer in enumerate(self.layers):
            inputs = layer(inputs) if every or number != 1 else inputs
        return inputs.square().sum()


def inputs_of(rank: int) -> Tensor:
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(rank))


def gradients(*, every: bool, bucket_bytes: int) -> dict[str, Any]:
    """Those of two steps, the mean that was sent beside them, and what was sent before the first layer's came."""
    model = Some()
    buckets = GradientBuckets(model.parameters(), RANKS, bucket_bytes)
    sent: list[int] = []
    next(model.parameters()).register_hook(lambda _: sent.append(len(buckets._sent)))
    found = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        beside = torch.tensor(float(dist.get_rank()))
        loss = model(inputs_of(dist.get_rank()), every=every)
        buckets.begin([beside])
        loss.backward()
        buckets.finish()
        found.append((beside, [None if p.grad is None else p.grad.clone() for p in model.parameters()]))
    return {"found": found, "sent": sent}


def cases() -> dict[tuple[bool, int], dict[str, Any]]:
    return {(every, size): gradients(every=every, bucket_bytes=size) for every in (True, False) for size in (1, 10**9)}


def test_gradients_are_means_and_leave_before_the_backward_pass_ends(tmp_path: Path) -> None:
    results = run(RANKS, tmp_path, cases)
    for every in (True, False):
        model = Some()
        torch.stack([model(inputs_of(rank), every=every) for rank in range(RANKS)]).mean().backward()
        expected = [parameter.grad for parameter in model.parameters()]
        for result in results:
            for size in (1, 10**9):
                for beside, found in result[every, size]["found"]:
                    assert beside == (RANKS - 1) / 2
                    assert [one is None for one in found] == [one is None for one in expected]
                    for one, other in zip(found, expected, strict=True):
                        if one is not None:
                            torch.testing.assert_close(one, other)
            assert result[every, 10**9]["sent"] == [0, 0]
            # A layer that is not used is waited for, and with it those that come after.
            assert min(result[every, 1]["sent"]) >= (2 * LAYERS - 3 if every else 2 * (LAYERS - 2))
