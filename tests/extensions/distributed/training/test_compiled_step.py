"""A step that processes share, compiled in each: it learns what it does uncompiled, and compiles in all or in none."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch._dynamo.utils import counters

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.extensions.distributed.training import compiled_step
from tests.engine.synthetic import write_dataset
from tests.extensions.distributed.training.ranks import RATES, SPEC, curve, run, train_and_stop, train_here

pytest.importorskip("torchrec")
EAGER = Execution(threads=1, batch_size=97)  # shares of 49 and 48 samples, and a last batch that is not full
COMPILED = replace(EAGER, compiled=True)
EVEN = replace(COMPILED, batch_size=96)  # equal shares, of which all processes compile the same
STOPPED_AT = 13
PLAIN = replace(RATES, dense_optimizer="sgd")  # its step is the gradient itself
DROPPING = replace(SPEC, dropout=0.3)


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
