"""Compiled layers learn the same within rounding, resume bit by bit, and are done without where nothing compiles."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.compile import compile_layers, may_pay, pays
from shunter.engine.loop.step import applied, autocast
from shunter.engine.loop.trainer import train
from shunter.engine.probes.steps import time_steps
from shunter.engine.results import TrainResult
from shunter.errors import CheckpointError
from shunter.models.registry import Model, build_model
from tests.engine.compilable import COMPILED, SPEC
from tests.engine.compilable import RATES as DECAYING
from tests.engine.interruptions import interrupt_at
from tests.engine.synthetic import write_dataset

RATES = replace(DECAYING, weight_decay=0.0)
SCHEDULE = Schedule(max_epochs=2, seed=3)
IN_BF16 = replace(COMPILED, precision="bf16")
WARNS = "shunter.engine.loop.compile"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


@dataclass(frozen=True)
class CompiledOnce:
    """A model with compiled layers, and what it was before.

    Attributes:
        model: The model in training mode.
        weights: Its weights before.
        random_state: State of torch's generator before.
        random_state_after: The same state after.
    """

    model: Model
    weights: list[torch.Tensor]
    random_state: torch.Tensor
    random_state_after: torch.Tensor


def compiled_layers(dataset: Dataset, execution: Execution) -> CompiledOnce:
    with applied(execution):
        model = build_model(SPEC, dataset.features).train()
        weights, random_state = [parameter.clone() for parameter in model.parameters()], torch.get_rng_state()
        assert compile_layers(model, execution) is not None
        return CompiledOnce(model, weights, random_state, torch.get_rng_state())


@pytest.fixture(scope="module")
def in_bf16(dataset: Dataset) -> CompiledOnce:
    """One model for the tests of layers alone; compiling is most of what they take."""
    return compiled_layers(dataset, IN_BF16)


def weights_of(result: TrainResult) -> list[torch.Tensor]:
    return list(result.model.state_dict().values())


@pytest.mark.long
def test_compiled_training_equals_eager_training_within_rounding(dataset: Dataset) -> None:
    # In bf16 whole trainings are not comparable: the optimisers turn the rounding of a small gradient into a full step.
    compiled = train(TrainingJob(dataset, SPEC, RATES, COMPILED, SCHEDULE))
    eager = train(TrainingJob(dataset, SPEC, RATES, replace(COMPILED, compiled=False), SCHEDULE))
    assert compiled.train_seconds > compiled.compile_seconds > 0
    assert eager.compile_seconds == 0
    for one, other in zip(weights_of(compiled), weights_of(eager), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert compiled.validation.ne == pytest.approx(eager.validation.ne, rel=1e-4)


def logits_and_gradients(model: Model, dataset: Dataset, execution: Execution) -> list[torch.Tensor]:
    model.zero_grad()
    with applied(execution), autocast(torch.device("cpu"), execution.precision):
        logits = model(*next(BatchLoader(dataset, "train", 64).batches()).inputs)
    logits.square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert None not in gradients
    return [logits, *(gradient.clone() for gradient in gradients if gradient is not None)]


def assert_compiled_equals_eager(dataset: Dataset, compiled: CompiledOnce, execution: Execution) -> None:
    tolerance = {"fp32": 1e-5, "bf16": 2e-2}[execution.precision]
    eager = build_model(SPEC, dataset.features).train()
    found = [logits_and_gradients(model, dataset, execution) for model in (eager, compiled.model)]
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= tolerance * other.norm()


@pytest.mark.slow
def test_compiling_leaves_weights_gradients_and_random_state(in_bf16: CompiledOnce) -> None:
    assert all(map(torch.equal, in_bf16.weights, in_bf16.model.parameters()))
    assert all(parameter.grad is None for parameter in in_bf16.model.parameters())
    assert torch.equal(in_bf16.random_state_after, in_bf16.random_state)


@pytest.mark.slow
def test_compiled_logits_and_gradients_equal_eager_ones(dataset: Dataset, in_bf16: CompiledOnce) -> None:
    assert_compiled_equals_eager(dataset, in_bf16, IN_BF16)


@pytest.mark.long
def test_compiled_logits_and_gradients_equal_eager_ones_in_single_precision(dataset: Dataset) -> None:
    assert_compiled_equals_eager(dataset, compiled_layers(dataset, COMPILED), COMPILED)


@pytest.mark.slow
def test_an_interrupted_compiled_training_resumes_bitwise_and_only_compiled(dataset: Dataset, tmp_path: Path) -> None:
    spec = replace(SPEC, dropout=0.3)
    expected = train(TrainingJob(dataset, spec, RATES, COMPILED, SCHEDULE))

    with pytest.raises(KeyboardInterrupt):
        train(
            TrainingJob(dataset, spec, RATES, COMPILED, SCHEDULE),
            Hooks(on_step=interrupt_at(7)),
            Checkpointing(tmp_path),
        )
    with pytest.raises(CheckpointError, match="compiled"):
        train(
            TrainingJob(dataset, spec, RATES, replace(COMPILED, compiled=False), SCHEDULE),
            checkpointing=Checkpointing(tmp_path),
        )
    resumed = train(TrainingJob(dataset, spec, RATES, COMPILED, SCHEDULE), checkpointing=Checkpointing(tmp_path))
    assert all(map(torch.equal, weights_of(resumed), weights_of(expected)))
    assert resumed.compile_seconds > 0


def test_without_a_working_compiler_training_goes_on_eagerly(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # with nothing of earlier tests
    execution = replace(COMPILED, batch_size=COMPILED.batch_size + 1)  # compiled by no other test
    with config.patch({"cpp.cxx": (None, "no-such-compiler")}):
        done = train(TrainingJob(dataset, SPEC, RATES, execution, SCHEDULE))
    assert [record.name for record in caplog.records if record.levelname == "WARNING"] == [WARNS]
    eager = train(TrainingJob(dataset, SPEC, RATES, replace(execution, compiled=False), SCHEDULE))
    assert (done.compile_seconds, done.validation.ne) == (0.0, eager.validation.ne)


@pytest.mark.slow
def test_a_probe_reports_what_compiling_took(dataset: Dataset) -> None:
    timing = time_steps(dataset, SPEC, DECAYING, COMPILED, steps=3)
    assert timing.compile_seconds is not None
    assert timing.compile_seconds > 0
    assert time_steps(dataset, SPEC, RATES, replace(COMPILED, compiled=False), steps=3).compile_seconds is None


def test_what_compiling_took_is_told_apart_from_the_steps(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    hour = 3_600.0  # longer than the three steps on any machine
    monkeypatch.setattr("shunter.engine.probes.steps.compile_step", lambda *model_and_batch: hour)
    timing = time_steps(dataset, SPEC, RATES, COMPILED, steps=3)
    assert timing.compile_seconds == hour
    assert timing.step_seconds_p90 < hour


@pytest.mark.slow
def test_other_batch_sizes_and_scoring_stay_uncompiled(dataset: Dataset, in_bf16: CompiledOnce) -> None:
    model = in_bf16.model.train()
    batches = BatchLoader(dataset, "train", 50).batches()
    compilations = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with autocast(torch.device("cpu"), "bf16"):
        model(*next(batches).inputs)
    with torch.no_grad():
        model.eval()(*next(BatchLoader(dataset, "train", 64).batches()).inputs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compilations


def test_compiling_pays_in_long_trainings_only() -> None:
    assert not may_pay(steps=1_000, eager_step_seconds=0.005)
    assert may_pay(steps=100_000, eager_step_seconds=0.005)
    assert pays(steps=100_000, eager_step_seconds=0.005, compiled_step_seconds=0.0045, compile_seconds=40)
    assert not pays(steps=50_000, eager_step_seconds=0.005, compiled_step_seconds=0.0045, compile_seconds=40)
    assert not pays(steps=10**9, eager_step_seconds=0.005, compiled_step_seconds=0.0051, compile_seconds=0.1)
