"""Compiled layers learn the same within rounding, resume bit by bit, and are done without where nothing compiles."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.compile import compile_layers, may_pay, pays
from shunter.engine.loop.step import autocast
from shunter.engine.loop.trainer import train
from shunter.engine.probes.steps import time_steps
from shunter.engine.results import TrainResult
from shunter.errors import CheckpointError
from shunter.models.registry import build_model
from shunter.settings import PROJECT_ROOT
from tests.engine.compilable import COMPILED, SPEC
from tests.engine.compilable import RATES as DECAYING
from tests.engine.synthetic import write_dataset

RATES = replace(DECAYING, weight_decay=0.0)
SCHEDULE = Schedule(max_epochs=2, seed=3)
IN_BF16 = replace(COMPILED, precision="bf16")  # one for all tests of the layers alone, which find it in the cache

WITHOUT_COMPILER = """
import sys
from pathlib import Path
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from tests.engine.loop.test_compile import COMPILED, RATES, SCHEDULE, SPEC
result = train(TrainingJob(Dataset.load(Path(sys.argv[1])), SPEC, RATES, COMPILED, SCHEDULE))
print(result.compile_seconds, repr(result.validation.ne))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "tolerance"), [pytest.param("fp32", 1e-5, marks=pytest.mark.long), ("bf16", 2e-2)]
)
def test_compiled_logits_and_gradients_equal_eager_ones(
    dataset: Dataset, precision: str, tolerance: float, request: pytest.FixtureRequest
) -> None:
    execution = replace(COMPILED, precision=precision)  # type: ignore[arg-type]
    found = []
    threads = torch.get_num_threads()
    torch.set_num_threads(execution.threads or threads)  # as a training has them, whose compiled code serves here too
    request.addfinalizer(lambda: torch.set_num_threads(threads))
    for compiled in (False, True):
        model = build_model(SPEC, dataset.features).train()
        if compiled:
            assert compile_layers(model, execution) is not None
        with autocast(torch.device("cpu"), precision):
            logits = model(*next(BatchLoader(dataset, "train", 64).batches()).inputs)
        logits.square().mean().backward()
        found.append((logits, *(parameter.grad for parameter in model.parameters())))
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= tolerance * other.norm()


@pytest.mark.slow
def test_an_interrupted_compiled_training_resumes_bitwise_and_only_compiled(dataset: Dataset, tmp_path: Path) -> None:
    spec = replace(SPEC, dropout=0.3)
    expected = train(TrainingJob(dataset, spec, RATES, COMPILED, SCHEDULE))

    def interrupt(step: int, _: int) -> None:
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(TrainingJob(dataset, spec, RATES, COMPILED, SCHEDULE), Hooks(on_step=interrupt), Checkpointing(tmp_path))
    with pytest.raises(CheckpointError, match="compiled"):
        train(
            TrainingJob(dataset, spec, RATES, replace(COMPILED, compiled=False), SCHEDULE),
            checkpointing=Checkpointing(tmp_path),
        )
    resumed = train(TrainingJob(dataset, spec, RATES, COMPILED, SCHEDULE), checkpointing=Checkpointing(tmp_path))
    assert all(map(torch.equal, weights_of(resumed), weights_of(expected)))
    assert resumed.compile_seconds > 0


@pytest.mark.slow
def test_compiling_leaves_weights_gradients_and_random_state(dataset: Dataset) -> None:
    model = build_model(SPEC, dataset.features).train()
    before = [parameter.clone() for parameter in model.parameters()]
    random_state = torch.get_rng_state()
    assert compile_layers(model, IN_BF16) is not None
    assert all(map(torch.equal, before, model.parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_without_a_working_compiler_training_goes_on_eagerly(dataset: Dataset, tmp_path: Path) -> None:
    environment = {**os.environ, "CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT_COMPILER, str(dataset.directory)]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT_ROOT, env=environment, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "stays uncompiled" in finished.stderr
    eager = train(TrainingJob(dataset, SPEC, RATES, replace(COMPILED, compiled=False), SCHEDULE))
    assert finished.stdout.split() == ["0.0", repr(eager.validation.ne)]


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
def test_other_batch_sizes_and_scoring_stay_uncompiled(dataset: Dataset) -> None:
    model = build_model(SPEC, dataset.features).train()
    assert compile_layers(model, IN_BF16) is not None
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
