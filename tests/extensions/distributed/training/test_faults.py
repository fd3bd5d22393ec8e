"""Processes that are killed, files that are damaged, losses that are no numbers: one clear error and a way on."""

import json
import os
import random
import resource
import shutil
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed as dist

import shunter.errors
from shunter.engine.checkpoint.checkpoint_settings import CheckpointFigures, CheckpointSettings
from shunter.engine.checkpoint.storage import holds_sharded_checkpoint
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.stopping import StopKind
from shunter.errors import HardwareError, ProcessLostError, RequestError, ShunterError, TrainingError
from shunter.extensions.distributed.executors.process_group import KEPT_LOG, ProcessGroup, group_failure
from shunter.extensions.distributed.links.processes import Group
from shunter.extensions.distributed.training import Sharding
from shunter.extensions.distributed.training.processes import ManyProcesses
from shunter.extensions.distributed.training.stored import checkpoints, latest_checkpoint
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from tests.engine.parts import parts_of
from tests.engine.synthetic import write_dataset
from tests.extensions.distributed.training.ranks import (
    EXECUTION,
    MACHINE,
    RATES,
    SCHEDULE,
    SPEC,
    curve,
    kill_at_random,
    run,
    start,
    train_and_stop,
    train_here,
)

pytest.importorskip("torchrec")
KILLS = 5
LONG = Schedule(max_epochs=10, patience=10, seed=3)
ROW_WISE = {"sharding": {"types": ("row_wise",)}}
SHARDING = Sharding(machine=MACHINE)
PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=97)


def group_of(processes: int) -> ProcessGroup:
    return ProcessGroup(PLACEMENT.model_copy(update={"processes": processes}), SHARDING)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=2_000)


@pytest.fixture(scope="module")
def checkpoint(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two processes, in the second epoch."""
    folder = tmp_path_factory.mktemp("stopped")
    run(2, folder, train_and_stop, dataset, folder / "checkpoint", 20)
    return folder / "checkpoint"


@pytest.fixture(scope="module")
def undisturbed(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes come to that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return run(2, folder, train_here, dataset, folder / "checkpoint")


@pytest.mark.slow
@pytest.mark.parametrize(
    "checkpoint_settings",
    [CheckpointSettings(), pytest.param(CheckpointSettings(rows="consecutive"), marks=pytest.mark.long)],
)
def test_killed_at_any_moment_it_ends_as_the_undisturbed_training(
    dataset: Dataset, tmp_path: Path, checkpoint_settings: CheckpointSettings
) -> None:
    work = partial(train_here, schedule=LONG, checkpoint_steps=1, checkpoint_settings=checkpoint_settings, **ROW_WISE)
    undisturbed = run(2, tmp_path / "undisturbed", work, dataset, tmp_path / "undisturbed" / "checkpoint")
    drawn = random.Random(0)
    kills = 0
    while kills < KILLS:
        processes = start(2, tmp_path / f"attempt{kills}", work, dataset, tmp_path / "checkpoint")
        if not kill_at_random(processes, tmp_path / "checkpoint", drawn):
            break
        kills += 1
    results = run(2, tmp_path / "last", work, dataset, tmp_path / "checkpoint")
    assert kills == KILLS, "the training was too short for as many kills"
    for rank, expected in zip(results, undisturbed, strict=True):
        assert curve(rank["history"]) == curve(expected["history"])
        for left, right in zip(rank["shards"], expected["shards"], strict=True):
            assert torch.equal(left[3], right[3])


def error_of(dataset: Dataset, directory: Path, **options: Any) -> tuple[str, str]:
    try:
        train_here(dataset, directory, **options)
    except ShunterError as error:
        return type(error).__name__, str(error)
    return "", ""


def copied(checkpoint: Path, folder: Path) -> Path:
    shutil.copytree(checkpoint, folder)
    found = latest_checkpoint(folder)
    assert found is not None
    return found


def stop_and_go_on(dataset: Dataset, directory: Path, damaged: Path | None, **options: Any) -> dict[str, Any]:
    """Train to the end after the newest checkpoint was damaged."""
    if damaged is not None and dist.get_rank() == 0:
        damaged.write_bytes(damaged.read_bytes()[:-7])
    dist.barrier()
    return train_here(dataset, directory, **options)


@pytest.mark.parametrize("damaged", ["process1.safetensors", "dense.safetensors", "index.json"])
def test_a_damaged_file_of_the_newest_is_named_and_the_one_before_goes_on(
    dataset: Dataset, checkpoint: Path, undisturbed: list[dict[str, Any]], tmp_path: Path, damaged: str
) -> None:
    path = copied(checkpoint, tmp_path / "checkpoint") / damaged
    results = run(2, tmp_path, stop_and_go_on, dataset, tmp_path / "checkpoint", path)
    for rank, expected in zip(results, undisturbed, strict=True):
        assert curve(rank["history"]) == curve(expected["history"])
        for left, right in zip(rank["shards"], expected["shards"], strict=True):
            assert torch.equal(left[3], right[3])


def test_all_processes_name_the_newest_file_where_every_checkpoint_is_damaged(
    dataset: Dataset, checkpoint: Path, tmp_path: Path
) -> None:
    newest = copied(checkpoint, tmp_path / "checkpoint")
    for folder in checkpoints(newest.parent):
        path = folder / "dense.safetensors"
        path.write_bytes(path.read_bytes()[:-7])
    for name, message in run(2, tmp_path, error_of, dataset, tmp_path / "checkpoint"):
        assert name == "DamagedFileError"
        assert f"{newest / 'dense.safetensors'} is damaged" in message


def slowly_kept(dataset: Dataset, directory: Path) -> tuple[dict[str, Any], CheckpointFigures]:
    """Train while the writers are held up; with the figures of the checkpoints."""
    processes = ManyProcesses(dataset, SHARDING)
    job = {"spec": SPEC, "hyperparameters": RATES, "execution": EXECUTION, "schedule": SCHEDULE}
    checkpoint_settings = CheckpointSettings(rows="auto", bits=32, bytes_per_second=60_000)
    parts = parts_of(
        dataset, checkpoint_directory=directory, checkpoint_steps=1, checkpoint_settings=checkpoint_settings, **job
    )
    result = train(*parts, processes=processes)
    return {"history": result.history}, processes.kept.figures


def test_steps_go_on_while_the_writers_are_held_up(
    dataset: Dataset, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    for (rank, figures), expected in zip(
        run(2, tmp_path, slowly_kept, dataset, tmp_path / "checkpoint"), undisturbed, strict=True
    ):
        assert curve(rank["history"]) == curve(expected["history"])
        assert figures.skipped > 5
        assert figures.written >= 2
        assert figures.write_seconds > figures.stall_seconds / 2 > 0
    assert len(checkpoints(tmp_path / "checkpoint")) == 2


def test_a_process_that_cannot_write_is_heard_of_in_all(dataset: Dataset, tmp_path: Path) -> None:
    """A full disk of the second process alone."""
    for name, message in run(2, tmp_path, full_in_one, dataset, tmp_path / "checkpoint"):
        assert name == "CheckpointError"
        assert "process1.safetensors" in message


def full_in_one(dataset: Dataset, directory: Path) -> tuple[str, str]:
    def fill_disk(step: int, _: int) -> None:
        if step == 1 and dist.get_rank() == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))

    try:
        return error_of(dataset, directory, on_step=fill_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_checkpoint_of_another_training_is_refused(dataset: Dataset, checkpoint: Path, tmp_path: Path) -> None:
    copied(checkpoint, tmp_path / "checkpoint")
    work = partial(error_of, spec=model_spec(embedding_dim=16))
    for name, message in run(2, tmp_path, work, dataset, tmp_path / "checkpoint"):
        assert name == "CheckpointError"
        assert "belongs to another training run (it differs in architecture)" in message


def test_a_checkpoint_of_a_single_process_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    train(
        TrainingJob(dataset, SPEC, RATES, EXECUTION, Schedule(max_epochs=1)),
        checkpointing=Checkpointing(tmp_path / "checkpoint"),
    )
    assert not holds_sharded_checkpoint(tmp_path / "checkpoint")
    for name, message in run(2, tmp_path, error_of, dataset, tmp_path / "checkpoint"):
        assert name == "CheckpointError"
        assert "was written by a single process" in message


def test_an_unfinished_checkpoint_does_not_count(dataset: Dataset, checkpoint: Path, tmp_path: Path) -> None:
    finished = copied(checkpoint, tmp_path / "checkpoint")
    (finished.parent / "checkpoint-000099.partial").mkdir()
    assert latest_checkpoint(finished.parent) == finished


def test_a_loss_that_is_no_number_stops_all_processes(dataset: Dataset, tmp_path: Path) -> None:
    rates = Hyperparameters(dense_optimizer="sgd", dense_learning_rate=1e30)
    work = partial(error_of, hyperparameters=rates)
    for name, message in run(2, tmp_path, work, dataset, tmp_path / "checkpoint"):
        assert name == "TrainingError"
        assert "lower the learning rates" in message


@pytest.fixture
def started(warm_starter: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Rank and process of each that is started from now on, forked from one that has torch loaded."""
    found: list[tuple[str, Any]] = []

    def start_one(*arguments: str, environment: dict[str, str], **options: Any) -> Any:
        found.append((environment["RANK"], warm_starter.start_python(*arguments, environment=environment, **options)))
        return found[-1][1]

    monkeypatch.setattr("shunter.hardware.devices.python_process.start_python", start_one)
    return found


@pytest.mark.slow
def test_a_launched_training_survives_a_dead_process_and_an_interrupt(
    dataset: Dataset, tmp_path: Path, started: list[tuple[str, Any]]
) -> None:
    directory = tmp_path / "checkpoint"
    schedule = Schedule(max_epochs=3, patience=4, seed=3)

    def launch(processes: int, **callbacks: Any) -> Any:
        job = TrainingJob(dataset, SPEC, RATES, EXECUTION, schedule)
        return group_of(processes).run(job, Hooks(**callbacks), Checkpointing(directory, steps=5))

    killed: list[int] = []

    def kill_second(step: int, _: int) -> None:
        # Checkpoints are written beside the steps.
        if step >= 8 and latest_checkpoint(directory) is not None and not killed:
            killed.append(step)
            next(process for rank, process in started if rank == "1").kill()

    with pytest.raises(
        ProcessLostError, match=r"^Process 1 of 2 was ended by SIGKILL.* train again to resume from it\.$"
    ):
        launch(2, on_step=kill_second)
    assert step_of(directory) >= 5
    assert "process 1, exit code -9" in (directory / KEPT_LOG).read_text()

    def interrupt(step: int, _: int) -> None:
        if step >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(2, on_step=interrupt)
    assert step_of(directory) >= 20
    assert [rank for rank, _ in started] == ["0", "1"] * 2
    assert all(process.poll() is not None for _, process in started)

    epochs: list[int] = []
    result = launch(3, on_epoch=lambda report: epochs.append(report.epoch))
    expected = train(TrainingJob(dataset, SPEC, RATES, EXECUTION, schedule))
    assert curve(result.history) == pytest.approx(curve(expected.history), abs=1e-5)
    assert result.stop_reason.kind is StopKind.MAX_EPOCHS
    assert epochs[-1] == 3
    assert result.validation == result.history[result.best_epoch - 1].validation
    metrics = evaluate(result.model, dataset, "validation", EXECUTION).metrics
    assert metrics.logloss == pytest.approx(result.validation.logloss, abs=1e-6)


def step_of(directory: Path) -> int:
    latest = latest_checkpoint(directory)
    assert latest is not None
    return json.loads((latest / "index.json").read_text())["state"]["step"]


def failure_of(folder: Path, behaviour: str) -> ShunterError:
    """What is said of two processes of which the second fails."""
    (folder / "behaviour").write_text(behaviour)
    reading, writing = os.pipe()
    group = Group("tests.extensions.distributed.links.group_member", folder, 2, threads=1, descriptor=writing)
    try:
        group.members[1].wait(120)
        return group_failure(group)
    finally:
        group.end()
        os.close(reading)
        os.close(writing)


@pytest.mark.usefixtures("warm_processes")
def test_the_error_of_a_process_is_the_error_of_the_training(tmp_path: Path) -> None:
    error = failure_of(tmp_path, "refuse")
    assert (type(error), str(error)) == (RequestError, "process 1 does not like it")


@pytest.mark.usefixtures("warm_processes")
def test_a_process_that_fails_unexpectedly_is_named_with_its_last_words(tmp_path: Path) -> None:
    error = failure_of(tmp_path, "crash")
    assert isinstance(error, TrainingError)
    assert "Process 1 of 2 failed (ValueError: out of luck)" in str(error)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"processes": 0}, RequestError, "at least one process"),
        ({"processes": 2, "execution": Execution(embedding_memory_bytes=10)}, RequestError, "embedding-memory"),
        ({"processes": 64, "execution": Execution(device="cuda")}, HardwareError, "64 processes need one CUDA device"),
    ],
)
def test_what_cannot_run_in_processes_is_refused_at_once(
    dataset: Dataset, tmp_path: Path, changes: dict[str, Any], kind: type[ShunterError], words: str
) -> None:
    arguments: dict[str, Any] = {"execution": EXECUTION, **changes}
    with pytest.raises(kind, match=words):
        group_of(arguments["processes"]).run(
            TrainingJob(dataset, SPEC, RATES, arguments["execution"], SCHEDULE),
            checkpointing=Checkpointing(tmp_path / "checkpoint"),
        )
    assert issubclass(kind, shunter.errors.ShunterError)
