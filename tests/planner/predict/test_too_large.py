"""What once had too little memory is not tried again, until something as large fits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shunter.engine.data.dataset import SplitStatistics
from shunter.engine.probes.measurement import Measurement
from shunter.hardware.types import Placement, Precision
from shunter.planner.choose import choose
from shunter.planner.history import History, PastRun
from shunter.planner.history.record import FlowNotes, flow_evidence
from shunter.planner.predict.too_large import LONGEST_REMEMBERED, remembered, with_memory
from shunter.requests import TrainRequest
from shunter.tracking.convention import data_params
from shunter.tracking.evidence import TooLarge, data_key
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.planner.history.test_calibration import run
from tests.planner.measurements import measurement
from tests.planner.test_decide import candidate

NOW = datetime(2026, 1, 10, tzinfo=UTC)


def place(batch_size: int, precision: Precision = "fp32") -> Placement:
    return Placement(accelerator="cpu", threads=1, precision=precision, batch_size=batch_size)


def found(batch_size: int, memory_gib: int = 8, *, days: int = 1) -> PastRun:
    """A run that found a batch size too large, so many days ago."""
    large = TooLarge(placement=place(batch_size), accelerator_memory_bytes=memory_gib * 2**30)
    return run(1.0, outcome="failed", too_large=(large,), ended_at=(NOW - timedelta(days=days)).isoformat())


def excluded(runs: list[PastRun]) -> list[int]:
    """Batch sizes that are excluded after these runs."""
    candidates = [candidate(size) for size in (256, 512, 1024, 2048)]
    known = with_memory(candidates, remembered(runs, NOW))
    return [one.placement.batch_size for one in known if one.out_of_memory]


def test_as_much_or_more_is_excluded_where_there_is_no_more_memory() -> None:
    memory = candidate(256).accelerator_memory_bytes // 2**30
    assert excluded([found(1024, memory)]) == [1024, 2048]
    assert excluded([found(1024, memory - 1)]) == [], "here is more than there was"
    assert excluded([found(1024, memory).model_copy(update={"too_large": ()})]) == []


def test_it_is_forgotten_when_as_much_fitted_or_long_ago() -> None:
    memory = candidate(256).accelerator_memory_bytes // 2**30
    old = LONGEST_REMEMBERED.days + 1
    assert excluded([found(1024, memory, days=old)]) == []
    fitted = run(1.0, placement=place(1024), ended_at=NOW.isoformat())
    smaller = run(1.0, placement=place(512), ended_at=NOW.isoformat())
    assert excluded([fitted, found(1024, memory)]) == []
    assert excluded([smaller, found(1024, memory)]) == [1024, 2048]
    assert excluded([fitted.model_copy(update={"ended_at": "2026-01-01T00:00:00+00:00"}), found(1024, memory)])


def test_a_probe_that_ran_out_of_memory_is_not_repeated_by_the_next_run(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", rows=200)
    data = replace(data, splits=dict.fromkeys(data.splits, SplitStatistics(rows=2_000_000, positives=500_000)))
    asked: list[int] = []

    def measure(_: Any, __: Any, placement: Placement, steps: int) -> Measurement | None:
        asked.append(placement.batch_size)
        return measurement(1e-3, steps=steps) if placement.batch_size < 4096 else None

    request, profile = TrainRequest(trials=2, ensemble_size=1), make_profile(cores=1)
    first = choose(data, request, [profile], probe_seconds=600, measure=measure)
    assert any(size >= 4096 for size in asked)
    assert first.too_large
    notes = FlowNotes(data=data_key(data_params(data)), decision=first, auc=0.7)
    evidence = flow_evidence("train", request, notes)
    assert {one.placement for one in evidence.too_large} == set(first.too_large)
    past = run(
        1.0,
        data=evidence.data,
        too_large=evidence.too_large,
        placement=first.placement,
        ended_at=datetime.now(UTC).isoformat(),
    )
    asked.clear()
    second = choose(data, request, [profile], probe_seconds=600, measure=measure, history=History(runs=(past,)))
    assert asked
    assert max(asked) < 4096
    assert second.placement.batch_size < 4096
