"""What a flow leaves in the store for later choices, whatever its end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.engine.stopping import StopKind, StopLimit, StoppedError, StopReason
from shunter.errors import QualityNotReachedError, TrainingError
from shunter.hardware.types import EnergyReading, Placement
from shunter.planner.history import PastRun, read_history
from shunter.planner.history.record import FlowNotes
from shunter.requests import Limits, TrainRequest
from shunter.tasks.evidence import record_trainings, recorded_run
from shunter.tracking.evidence import Evidence, Figures, PairedTrial, log_evidence
from shunter.tracking.runs import child_run, closing, start_run_tree
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset

REQUEST = TrainRequest(limits=Limits(min_auc=0.78))
PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


class _Spent:
    total = EnergyReading.of(500.0, 50.0, "measured", "a counter")


@pytest.fixture
def run_id(tracking_root: Path, tmp_path: Path) -> str:
    return start_run_tree(REQUEST, _dataset(tmp_path))


def _dataset(folder: Path) -> Dataset:
    return write_dataset(folder / "data", rows=200)


def _train(run_id: str, folder: Path, error: BaseException | None) -> None:
    dataset = _dataset(folder)
    with closing(run_id), recorded_run(run_id, "train", REQUEST, dataset, _Spent()) as notes:  # pyright: ignore[reportArgumentType]
        for attempt in range(2):  # the second goes on with the first, and counts it
            with child_run(run_id, "member-0", "member") as member:
                figures = Figures(seconds=10.0 * (attempt + 1), joules=7.0, joules_source="measured")
                log_evidence(member.run_id, Evidence(kind="member", outcome="reached", epochs=3, measured=figures))
        notes.auc = 0.8
        if error is not None:
            raise error


def _learned(run_id: str) -> PastRun:
    history = read_history()
    assert not history.excluded
    (run,) = [run for run in history.runs if run.run_id == run_id]
    return run


@pytest.mark.parametrize(
    ("error", "outcome", "limit"),
    [
        (None, "reached", None),
        (QualityNotReachedError("The model reached AUC 0.7.", 0.7), "missed", None),
        (TrainingError("The loss is not a number."), "failed", None),
        (StoppedError("The budget ended before the first trial.", ENOUGH), "stopped", "time"),
        (KeyboardInterrupt(), "stopped", "interrupted"),
        (MemoryError(), "failed", None),
    ],
)
def test_a_flow_teaches_whatever_its_end(
    run_id: str, tmp_path: Path, error: BaseException | None, outcome: str, limit: str | None
) -> None:
    if error is None:
        _train(run_id, tmp_path, None)
    else:
        with pytest.raises(type(error)):
            _train(run_id, tmp_path, error)
    run = _learned(run_id)
    assert (run.outcome, run.limit, run.asked_auc) == (outcome, limit, 0.78)
    assert run.is_censored == (outcome != "reached")
    assert run.out_of_memory == isinstance(error, MemoryError)
    assert (run.seconds, run.joules) == (50.0, 500.0)
    assert (run.measured.seconds, run.measured.joules, run.epochs) == (20.0, 7.0, 3.0)
    assert run.data.endswith("4")


@pytest.mark.parametrize("kind", [StopKind.PRUNED, StopKind.SCREENING])
def test_a_pruned_trial_is_no_end_of_its_run(kind: StopKind) -> None:
    notes = FlowNotes()
    record_trainings(notes, [cast("Any", SimpleNamespace(stop_reason=StopReason(kind)))])
    assert notes.stop_reason is None


def test_bound_of_a_trial_beside_its_partner_ends_no_run() -> None:
    explored = SimpleNamespace(stop_reason=StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": 2.0}))
    pair = PairedTrial(placement=PLACEMENT, beside=PLACEMENT, seconds=1.0, seconds_ratio=2.0, epochs_ratio=1.0)
    for notes, is_noted in ((FlowNotes(), True), (FlowNotes(pair=pair), False)):
        record_trainings(notes, [cast("Any", explored)])
        assert (notes.stop_reason is not None) == is_noted
