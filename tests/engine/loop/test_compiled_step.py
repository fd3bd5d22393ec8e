"""A step compiled as a whole learns what an ordinary one does, for every optimiser, and stands back where it cannot."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.compiled_step import STATES, compile_step
from shunter.engine.loop.loss import task_weights
from shunter.engine.loop.step import applied, build_dense_optimizer, train_step
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import ModelSpec
from tests.engine.compilable import COMPILED, RATES, SPEC
from tests.engine.several_labels import with_tasks, with_weights
from tests.engine.synthetic import write_dataset

# Its step is the gradient itself, and the least to compile.
PLAIN = replace(RATES, dense_optimizer="sgd")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As a training at this placement has them; what is compiled is for so many."""
    with applied(COMPILED):
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


def trained(
    dataset: Dataset, spec: ModelSpec, rates: Hyperparameters, *, compiled: bool
) -> tuple[Model, torch.optim.Optimizer, list[torch.Tensor]]:
    """Some steps, the last of them on a batch that is not full."""
    model = build_model(spec, dataset.features, embedding_learning=rates.embedding_learning).train()
    optimizer = build_dense_optimizer(model, rates)
    weights = task_weights(rates.task_weights, dataset.features.tasks, "cpu")
    batches = list(BatchLoader(dataset, "train", COMPILED.batch_size).batches())
    if compiled:
        assert compile_step(model, optimizer, COMPILED, batches[0], weights) is not None
        assert model.compiled_step is not None
    losses = [train_step(model, optimizer, batch, "fp32", weights) for batch in batches]
    assert len(batches[-1]) < COMPILED.batch_size
    return model, optimizer, losses


def assert_equal(dataset: Dataset, spec: ModelSpec, rates: Hyperparameters) -> None:
    (model, optimizer, losses), (other, other_optimizer, other_losses) = (
        trained(dataset, spec, rates, compiled=compiled) for compiled in (True, False)
    )
    torch.testing.assert_close(torch.stack(losses), torch.stack(other_losses), rtol=1e-4, atol=1e-5)
    for one, two in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    for one, two in zip(optimizer.state.values(), other_optimizer.state.values(), strict=True):
        for name in STATES[type(optimizer)]:
            torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", ["adam", *(pytest.param(other, marks=pytest.mark.long) for other in ("adagrad", "sgd"))]
)
def test_every_optimiser_learns_what_it_does_uncompiled(dataset: Dataset, optimizer: str) -> None:
    assert_equal(dataset, SPEC, replace(RATES, dense_optimizer=optimizer))  # type: ignore[arg-type]


@pytest.mark.long
def test_another_family_too(dataset: Dataset) -> None:
    assert_equal(dataset, model_spec(family="dcnv2", embedding_dim=8, top_widths=(16,)), PLAIN)


@pytest.mark.long
def test_several_labels_with_weights_and_gaps(tmp_path: Path) -> None:
    several = with_weights(with_tasks(write_dataset(tmp_path, rows=500)))
    assert_equal(several, SPEC, replace(PLAIN, task_weights=(1.0, 0.5)))


def test_layers_that_keep_more_than_weights_are_compiled_alone(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compiles them has tests of its own."""
    seconds = 7.0
    monkeypatch.setattr("shunter.engine.loop.compiled_step.compile_layers", lambda *model_and_execution: seconds)
    model = build_model(replace(SPEC, batch_norm=True), dataset.features).train()
    optimizer = build_dense_optimizer(model, RATES)
    assert compile_step(model, optimizer, COMPILED, next(BatchLoader(dataset, "train", 64).batches())) == seconds
    assert model.compiled_step is None


@pytest.mark.long
@torch._dynamo.config.patch(recompile_limit=1)
def test_many_models_of_one_process_are_compiled_as_a_whole(dataset: Dataset) -> None:
    for size in (COMPILED.batch_size, 32):
        model = build_model(SPEC, dataset.features).train()
        execution = replace(COMPILED, batch_size=size)
        batch = next(BatchLoader(dataset, "train", size).batches())
        compile_step(model, build_dense_optimizer(model, PLAIN), execution, batch)
        assert model.compiled_step is not None
