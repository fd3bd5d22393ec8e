"""A training that is interrupted anywhere ends as one that is not."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings, RowSelection
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.optimizers import FusedAdam
from shunter.engine.loop.trainer import train
from shunter.engine.results import EpochReport, TrainResult
from shunter.errors import CheckpointError
from shunter.models.registry import model_spec
from tests.engine.interruptions import assert_same_weights, interrupt_at
from tests.engine.synthetic import write_dataset

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.3)
EXECUTION = Execution(threads=1, batch_size=64)
SCHEDULE = Schedule(max_epochs=4, patience=4, seed=3)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=3_000)


def job(
    dataset: Dataset, rates: Hyperparameters = RATES, execution: Execution = EXECUTION, schedule: Schedule = SCHEDULE
) -> TrainingJob:
    return TrainingJob(dataset, SPEC, rates, execution, schedule)


@pytest.fixture(scope="module")
def undisturbed(dataset: Dataset) -> TrainResult:
    return train(job(dataset))


def assert_same(one: TrainResult, other: TrainResult) -> None:
    assert_same_weights(one, other)
    assert [(r.step, r.train_logloss, r.validation) for r in one.history] == [
        (r.step, r.train_logloss, r.validation) for r in other.history
    ]
    assert (one.best_epoch, one.samples_seen) == (other.best_epoch, other.samples_seen)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd", "shampoo"])
def test_interrupted_every_few_steps_the_result_is_bitwise_the_same(
    dataset: Dataset, tmp_path: Path, optimizer: str
) -> None:
    rates = Hyperparameters(dense_optimizer=optimizer, dense_learning_rate=0.01, weight_decay=1e-4)  # type: ignore[arg-type]
    expected = train(job(dataset, rates))
    stops = iter([1, 20, 33, 34, 60, 99])
    stop = next(stops)

    while stop:
        with pytest.raises(KeyboardInterrupt):
            train(job(dataset, rates), Hooks(on_step=interrupt_at(stop)), Checkpointing(tmp_path))
        assert json.loads((tmp_path / "checkpoint.json").read_text())["state"]["step"] == stop
        stop = next(stops, 0)
    assert_same(train(job(dataset, rates), checkpointing=Checkpointing(tmp_path)), expected)


def test_interrupted_with_two_threads_and_bfloat16_the_result_is_the_same(dataset: Dataset, tmp_path: Path) -> None:
    execution = Execution(threads=2, batch_size=512, precision="bf16")
    expected = train(job(dataset, execution=execution))

    with pytest.raises(KeyboardInterrupt):
        train(job(dataset, execution=execution), Hooks(on_step=interrupt_at(7)), Checkpointing(tmp_path))
    assert_same(train(job(dataset, execution=execution), checkpointing=Checkpointing(tmp_path)), expected)


def test_interrupted_at_an_epochs_end_the_result_is_the_same(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path
) -> None:
    def interrupt(report: EpochReport) -> None:
        if report.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job(dataset), Hooks(on_epoch=interrupt), Checkpointing(tmp_path))
    assert_same(train(job(dataset), checkpointing=Checkpointing(tmp_path)), undisturbed)


def test_an_exception_within_a_step_keeps_the_former_checkpoint(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FusedAdam.step
    calls = 0

    def interrupted_step(self: FusedAdam, closure: None = None) -> None:
        nonlocal calls
        calls += 1
        if calls == 50:  # the embeddings have been updated already
            raise KeyboardInterrupt
        original(self, closure)

    monkeypatch.setattr(FusedAdam, "step", interrupted_step)
    with pytest.raises(KeyboardInterrupt):
        train(job(dataset), checkpointing=Checkpointing(tmp_path, steps=20))
    assert json.loads((tmp_path / "checkpoint.json").read_text())["state"]["step"] < 49
    assert_same(train(job(dataset), checkpointing=Checkpointing(tmp_path)), undisturbed)


def test_a_finished_training_is_not_trained_again(dataset: Dataset, undisturbed: TrainResult, tmp_path: Path) -> None:
    train(job(dataset), checkpointing=Checkpointing(tmp_path))
    steps: list[int] = []
    again = train(job(dataset), Hooks(on_step=lambda step, _: steps.append(step)), Checkpointing(tmp_path))
    assert steps == []
    assert_same(again, undisturbed)


def test_more_epochs_go_on_where_fewer_ended(dataset: Dataset, undisturbed: TrainResult, tmp_path: Path) -> None:
    shorter = Schedule(max_epochs=2, patience=4, seed=3)
    train(job(dataset, schedule=shorter), checkpointing=Checkpointing(tmp_path))
    assert_same(train(job(dataset), checkpointing=Checkpointing(tmp_path)), undisturbed)


CHILD = """
import sys
from pathlib import Path
from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks
from shunter.engine.loop.trainer import train
from tests.engine.checkpoint.test_resume import job
data, checkpoint = map(Path, sys.argv[1:3])
checkpoint_settings = CheckpointSettings(bits=32, rows=sys.argv[3], generations=1)
print("started", flush=True)
train(job(Dataset.load(data)),
      Hooks(on_step=lambda step, total: print(step, flush=True)),
      Checkpointing(checkpoint, steps=2, checkpoint_settings=checkpoint_settings))
"""


def start_child(dataset: Dataset, directory: Path, policy: str = "auto") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(dataset.directory), str(directory), policy]
    root = Path(__file__).parents[3]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)


def read_steps(child: subprocess.Popen[str], steps: int) -> None:
    """Wait until the child has done some steps of its own, or has ended."""
    assert child.stdout is not None
    for _ in range(steps + 1):
        if not child.stdout.readline():
            return


@pytest.mark.slow
# The first keeps tables as small as these whole.
@pytest.mark.parametrize("policy", ["auto", pytest.param("consecutive", marks=pytest.mark.long)])
def test_killed_at_any_moment_the_result_is_bitwise_the_same(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path, policy: RowSelection
) -> None:
    numbers = random.Random(0)
    for _ in range(2):
        child = start_child(dataset, tmp_path, policy)
        read_steps(child, numbers.randrange(5, 40))
        child.kill()
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    assert json.loads((tmp_path / "checkpoint.json").read_text())["state"]["step"] > 0
    checkpoint_settings = CheckpointSettings(bits=32, rows=policy)
    assert_same(
        train(job(dataset), checkpointing=Checkpointing(tmp_path, checkpoint_settings=checkpoint_settings)), undisturbed
    )
    assert not list(tmp_path.glob("*.tmp"))


def test_ctrl_c_saves_the_current_step_and_ends_the_process(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path
) -> None:
    child = start_child(dataset, tmp_path)
    read_steps(child, 21)
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    last_step = int(output.split()[-1]) if output.split() else 21
    assert json.loads((tmp_path / "checkpoint.json").read_text())["state"]["step"] == last_step
    assert_same(train(job(dataset), checkpointing=Checkpointing(tmp_path)), undisturbed)


@pytest.fixture
def interrupted(dataset: Dataset, tmp_path: Path) -> Path:
    """A checkpoint folder with a state and best weights."""

    with pytest.raises(KeyboardInterrupt):
        train(job(dataset), Hooks(on_step=interrupt_at(50)), Checkpointing(tmp_path))
    return tmp_path


def altered(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "altered":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"")


DAMAGES = ["truncated", "altered", "emptied", "missing"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_when_the_newest_state_is_damaged_the_one_before_goes_on_and_one_sentence_says_so(
    dataset: Dataset, undisturbed: TrainResult, interrupted: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    altered(interrupted / "state-000002.safetensors", damage)
    steps: list[int] = []
    hooks = Hooks(on_step=lambda step, _: steps.append(step))
    again = train(job(dataset), hooks, Checkpointing(interrupted))
    assert_same(again, undisturbed)
    assert steps[0] == 34
    (said,) = [record.getMessage() for record in caplog.records if "step 33" in record.getMessage()]
    assert "state-000002.safetensors" in said


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_list_of_files_is_read_from_its_copy(
    dataset: Dataset, undisturbed: TrainResult, interrupted: Path, damage: str
) -> None:
    altered(interrupted / "checkpoint.json", damage)
    steps: list[int] = []
    hooks = Hooks(on_step=lambda step, _: steps.append(step))
    again = train(job(dataset), hooks, Checkpointing(interrupted))
    assert_same(again, undisturbed)
    assert steps[0] == 51


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_that_no_state_can_do_without_is_named(dataset: Dataset, interrupted: Path, damage: str) -> None:
    altered(interrupted / "best-33-0.safetensors", damage)
    with pytest.raises(CheckpointError, match=r"best-33-0\.safetensors"):
        train(job(dataset), checkpointing=Checkpointing(interrupted))


def test_a_checkpoint_of_another_training_is_refused_with_the_difference(dataset: Dataset, interrupted: Path) -> None:
    wider = model_spec(embedding_dim=16)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json"):
        train(TrainingJob(dataset, wider, RATES, EXECUTION, SCHEDULE), checkpointing=Checkpointing(interrupted))
    with pytest.raises(CheckpointError, match=r"batch size, seed"):
        train(
            TrainingJob(dataset, SPEC, RATES, Execution(threads=1, batch_size=32), Schedule(seed=9)),
            checkpointing=Checkpointing(interrupted),
        )


def test_only_what_the_checkpoint_names_is_kept(interrupted: Path) -> None:
    assert sorted(path.name for path in interrupted.iterdir()) == [
        "best-33-0.safetensors",
        "checkpoint.json",
        "generation-000001.json",
        "generation-000002.json",
        "state-000001.safetensors",
        "state-000002.safetensors",
    ]
