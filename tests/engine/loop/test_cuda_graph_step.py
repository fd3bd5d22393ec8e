"""A recorded step is taken where steps are alike, and is the step itself."""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.loop.cuda_graph_step import WARM_UPS, RecordedStep, record_steps
from shunter.engine.loop.step import build_dense_optimizer, plain_step, train_step
from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.models.registry import Model, build_model
from tests.models.families.test_dlrm import inputs_of
from tests.models.families.test_families import FEATURES, SPECS

RATES = Hyperparameters(dense_learning_rate=5e-3)
SPEC = replace(SPECS["dlrm"], dropout=0.3)


class _OnProcessor(RecordedStep):
    """Takes a step when it is replayed, from the tensors that it was recorded with, as a graph does."""

    recorded = 0

    def _capture(self, batch: Batch, weights: Tensor | None) -> tuple[Any, Tensor]:
        self.recorded += 1
        assert not gc.isenabled(), "graphs of earlier models must not be freed while CUDA records"
        losses = torch.zeros(())
        model, optimizer, precision = self._model, self._optimizer, self._precision

        class Graph:
            def replay(self) -> None:
                losses.copy_(plain_step(model, optimizer, batch, precision, weights))

        return Graph(), losses


class _Refused(RecordedStep):
    def _capture(self, batch: Batch, weights: Tensor | None) -> tuple[Any, Tensor]:
        assert not gc.isenabled()
        raise RuntimeError("operation not permitted when stream is capturing")


def batches(sizes: Sequence[int]) -> list[Batch]:
    found = []
    for size in sizes:
        dense, values, offsets = inputs_of(FEATURES, batch=size)
        labels = torch.arange(size).remainder(2).float()
        found.append(Batch(keys=(), dense=dense, values=values, offsets=offsets, labels=labels))
    return found


def model_and_optimizer(rates: Hyperparameters = RATES) -> tuple[Model, torch.optim.Optimizer]:
    model = build_model(SPEC, FEATURES, embedding_learning=EmbeddingLearning(learning_rate=0.1)).train()
    return model, build_dense_optimizer(model, rates)


def trained(
    kind: type[RecordedStep] | None, sizes: Sequence[int], lower_at: int = 1_000
) -> tuple[list[Tensor], list[Tensor], Any]:
    """Losses, weights and who took the steps; the rates are halved at a step."""
    model, optimizer = model_and_optimizer()
    step = model.compiled_step = kind and kind(model, optimizer, "fp32")
    torch.manual_seed(5)
    losses = []
    for number, batch in enumerate(batches(sizes)):
        if number == lower_at:
            optimizer.param_groups[0]["lr"] /= 2
            model.embeddings.set_learning_rate(0.05)
        losses.append(train_step(model, optimizer, batch, "fp32"))
    return losses, list(model.state_dict().values()), step


@pytest.fixture(autouse=True)
def collected_again() -> Iterator[None]:
    """After a recording, and after one that failed."""
    yield
    assert gc.isenabled()


def assert_same(one: Sequence[Tensor], other: Sequence[Tensor]) -> None:
    assert all(map(torch.equal, one, other))


@pytest.mark.parametrize(
    ("sizes", "lower_at", "recorded"),
    [
        ((16,) * 6, 1_000, 1),
        ((16, 16, 16, 16, 7, 16, 16), 1_000, 1),  # the last batch of an epoch is smaller, and recorded again is nothing
        ((16,) * 8, 4, 2),
        ((16, 7) * 4, 1_000, 0),
        ((16,) * WARM_UPS, 1_000, 0),
    ],
)
def test_recorded_steps_are_the_steps_themselves(sizes: tuple[int, ...], lower_at: int, recorded: int) -> None:
    losses, weights, _ = trained(None, sizes, lower_at)
    of_recorded, recorded_weights, step = trained(_OnProcessor, sizes, lower_at)
    assert_same(of_recorded, losses)
    assert_same(recorded_weights, weights)
    assert step.recorded == recorded


def test_where_recording_fails_steps_go_on_one_by_one_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    losses, weights, _ = trained(None, (16,) * 5)
    of_refused, refused_weights, _ = trained(_Refused, (16,) * 5)
    assert_same(of_refused, losses)
    assert_same(refused_weights, weights)
    assert caplog.text.count("kernel by kernel") == 1


@pytest.mark.parametrize(
    ("optimizer", "change", "is_recorded"),
    [
        ("adam", {}, True),
        ("sgd", {}, True),
        ("adagrad", {}, False),
        ("adam", {"device": "cpu"}, False),
        ("adam", {"compiled": True}, False),
        ("adam", {"compacts_dead_units": True}, False),
    ],
)
def test_what_a_graph_cannot_hold_is_not_recorded(optimizer: Any, change: dict[str, Any], is_recorded: bool) -> None:
    model, dense = model_and_optimizer(replace(RATES, dense_optimizer=optimizer))
    record_steps(model, dense, replace(Execution(device="cuda:0"), **change))
    assert isinstance(model.compiled_step, RecordedStep) == (is_recorded and model.embeddings.can_be_recorded)
