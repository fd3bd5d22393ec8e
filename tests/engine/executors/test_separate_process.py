"""Trainings in a process of their own: the same figures, stopped and pruned from here, and deaths that do no harm."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from optuna import TrialPruned

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.executors import separate_process
from shunter.engine.executors.separate_process import SubprocessExecutor
from shunter.engine.job import ClickJob, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import EpochReport, TrainingFigures
from shunter.errors import ProcessLostError, RequestError, TrainingError
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.settings import PROJECT_ROOT
from tests.engine.executors.training_processes import training_processes
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
SPEC = model_spec(embedding_dim=4)
SCHEDULE = Schedule(max_epochs=2, checks=(0.5,))
LONG = Schedule(max_epochs=10_000, patience=10_000)
LEARNED_WITH = Hyperparameters(dense_learning_rate=5e-3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


@pytest.fixture(scope="module")
def executor() -> Iterator[SubprocessExecutor]:
    made = SubprocessExecutor(PLACEMENT, cores=1)
    yield made
    made.close()


@pytest.fixture
def forked(warm_starter: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes that start from now on: how one starts in truth is shown by the first and the last tests."""
    monkeypatch.setattr("shunter.hardware.devices.python_process.start_python", warm_starter.start_python)


def job_of(dataset: Dataset, schedule: Schedule = SCHEDULE) -> ClickJob:
    return TrainingJob(dataset, SPEC, LEARNED_WITH, execution_of(PLACEMENT), schedule)


def run(executor: SubprocessExecutor, dataset: Dataset, schedule: Schedule = SCHEDULE, **hooks: Any) -> TrainingFigures:
    return executor.figures(job_of(dataset, schedule), Hooks(**hooks))


def child() -> psutil.Process:
    """The process that was started last."""
    return training_processes()[-1]


def test_figures_and_reports_are_those_of_a_training_here(
    executor: SubprocessExecutor, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    reports: list[EpochReport] = []
    with executor.meter() as meter:
        figures = run(executor, dataset, on_epoch=reports.append)
        assert meter.reading.joules is None or meter.reading.joules > 0
        assert meter.reading.seconds > 0
    expected = train(job_of(dataset))
    assert figures.validation == expected.validation
    assert [report.is_check for report in reports] == [True, False, False]
    assert [report.validation for report in reports[1:]] == [report.validation for report in expected.history]
    assert figures.peak_memory_bytes > 0
    assert not hasattr(figures, "model"), "no weights travel"
    assert child().environ()["OMP_NUM_THREADS"] == "1", "the threads of the placement"


def test_what_a_callback_raises_ends_the_training_and_the_process_goes_on(
    executor: SubprocessExecutor, dataset: Dataset
) -> None:
    def prune(report: EpochReport) -> None:
        raise TrialPruned

    reports: list[EpochReport] = []
    run(executor, dataset, on_epoch=reports.append)
    process = child().pid
    with pytest.raises(TrialPruned):
        run(executor, dataset, LONG, on_epoch=prune)
    assert child().pid == process
    assert run(executor, dataset).history


def test_a_budget_here_ends_the_training_there(executor: SubprocessExecutor, dataset: Dataset) -> None:
    assert run(executor, dataset, LONG, should_stop=lambda: ENOUGH).stop_reason == ENOUGH


@pytest.mark.usefixtures("forked")
def test_a_mistake_there_is_raised_here_as_itself_and_the_executor_goes_on(
    executor: SubprocessExecutor, dataset: Dataset
) -> None:
    run(executor, dataset)
    process = child().pid
    with pytest.raises(RequestError, match="at least one epoch"):
        run(executor, dataset, Schedule(max_epochs=0))
    diverging = replace(job_of(dataset), hyperparameters=Hyperparameters(dense_learning_rate=1e38))
    with pytest.raises(TrainingError, match="loss"):
        executor.figures(diverging)
    assert child().pid == process
    strange = replace(job_of(dataset), schedule="soon")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="max_epochs"):
        executor.figures(strange)
    assert not psutil.pid_exists(process), "who knows what else is wrong with it"
    assert run(executor, dataset).history


@pytest.mark.usefixtures("forked")
def test_a_process_that_is_killed_is_lost_with_its_training_and_the_next_one_gets_another(
    executor: SubprocessExecutor, dataset: Dataset
) -> None:
    with executor.meter() as meter, pytest.raises(ProcessLostError, match=r"SIGKILL.*train it again"):
        run(executor, dataset, LONG, on_epoch=lambda report: child().kill())
    assert meter.reading.joules is None or meter.reading.joules > 0, "nothing unknown is counted as nothing"
    assert run(executor, dataset).history
    idle = child()
    idle.kill()
    idle.wait(60)
    assert run(executor, dataset).history, "one that ends while it waits is nobody's failure"


def test_an_idle_process_that_ended_a_moment_ago_is_replaced(
    executor: SubprocessExecutor, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(executor, dataset).history
    idle = child()
    idle.kill()
    idle.wait(60)
    monkeypatch.setattr(separate_process._Process, "has_ended", False)
    assert run(executor, dataset).history


def test_a_process_that_cannot_start_says_why(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    broken = SubprocessExecutor(PLACEMENT, cores=1)
    with broken.meter() as meter, pytest.raises(TrainingError, match="exited with code 1"):
        run(broken, dataset)
    assert meter.reading.method == "unavailable"
    broken.close()


def test_arrays_are_mapped_from_their_files_and_not_copied(executor: SubprocessExecutor, dataset: Dataset) -> None:
    """Pages of a file that nobody writes are shared by all processes that map it."""
    private: dict[str, int] = {}

    def look(report: EpochReport) -> None:
        for region in child().memory_maps(grouped=True):
            if region.path.startswith(str(dataset.directory)):
                private[Path(region.path).name] = region.anonymous

    run(executor, dataset, on_epoch=look)
    assert {"train.label.npy", "train.categorical.npy", "train.dense.npy"} <= set(private)
    assert set(private.values()) == {0}


@pytest.mark.usefixtures("forked")
def test_closing_ends_a_training_under_way_in_another_thread(dataset: Dataset) -> None:
    closing = SubprocessExecutor(PLACEMENT, cores=1)
    began, raised = threading.Event(), []

    def work() -> None:
        try:
            run(closing, dataset, LONG, on_epoch=lambda report: began.set())
        except BaseException as error:
            raised.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(60)
    process = child()
    closing.close()
    thread.join(60)
    assert raised == [KeyboardInterrupt]
    assert not process.is_running()
    with pytest.raises(KeyboardInterrupt):
        run(closing, dataset)


def test_no_process_is_left_when_this_one_is_killed(dataset: Dataset) -> None:
    script = f"""
from pathlib import Path
from shunter.engine.data.dataset import Dataset
from tests.engine.executors.test_separate_process import *
executor = SubprocessExecutor(PLACEMENT, cores=1)
run(executor, Dataset.load(Path({str(dataset.directory)!r})), LONG, on_epoch=lambda report: print("began", flush=True))
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT_ROOT) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "began\n"
        [process] = psutil.Process(parent.pid).children()
        parent.kill()
        parent.wait()
        process.wait(60)
    assert not process.is_running()
