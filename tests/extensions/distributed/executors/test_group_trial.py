"""Steps of a group are measured before its training, and decide as those of one process do."""

from dataclasses import replace
from pathlib import Path

import pytest

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.compilation import Trial, choose_compilation
from shunter.engine.job import ClickJob, TrainingJob
from shunter.errors import HardwareError
from shunter.extensions.distributed.executors.process_group import FEWEST_STEPS, ProcessGroup
from shunter.extensions.distributed.training import Machine, Sharding
from shunter.hardware.types import Placement
from tests.engine.compilable import RATES, SPEC
from tests.engine.synthetic import write_dataset

PLACE = Placement(accelerator="cpu", threads=2, precision="fp32", batch_size=64, processes=2)
SHARDING = Sharding(machine=Machine(memory_bytes=2 << 30, memory_bytes_per_second=1e10, link_bytes_per_second=1e9))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ClickJob:
    dataset: Dataset = write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)
    return TrainingJob(dataset, SPEC, RATES, Execution(threads=2, batch_size=64), Schedule(max_epochs=10**6))


@pytest.mark.long
def test_where_no_compiler_works_steps_are_measured_and_nothing_is_compiled(
    job: ClickJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchrec")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    choice = choose_compilation(job, directory=tmp_path, trial=ProcessGroup(PLACE, SHARDING).trial)
    assert not choice.compiled
    assert choice.reason == "no compiler works on this machine"
    assert choice.eager_step_seconds is not None
    assert choice.eager_step_seconds > 0


@pytest.mark.long
def test_compiled_steps_and_others_take_turns_in_one_trial(job: ClickJob) -> None:
    pytest.importorskip("torchrec")
    compiled = replace(job, execution=replace(job.execution, compiled=True))
    timing = ProcessGroup(PLACE, SHARDING).trial.measure(compiled)
    assert (timing.steps, timing.compile_seconds is None, timing.eager_step_seconds is None) == (30, False, False)
    assert 0 < timing.step_seconds_p10 <= timing.step_seconds <= timing.step_seconds_p90


def test_a_short_training_starts_no_processes(job: ClickJob, tmp_path: Path) -> None:
    short = replace(job, schedule=Schedule(max_epochs=FEWEST_STEPS // 20))
    choice = choose_compilation(short, directory=tmp_path, trial=ProcessGroup(PLACE, SHARDING).trial)
    assert (choice.compiled, choice.eager_step_seconds) == (False, None)
    assert "too few" in choice.reason


def test_a_group_that_fails_while_it_is_measured_trains_uncompiled(job: ClickJob, tmp_path: Path) -> None:
    def fail(_: ClickJob) -> None:
        raise HardwareError("Process 1 of 2 ended with code 1: measure again.")

    choice = choose_compilation(job, directory=tmp_path, trial=Trial(fail))  # type: ignore[arg-type]
    assert not choice.compiled
    assert "Process 1 of 2" in choice.reason
