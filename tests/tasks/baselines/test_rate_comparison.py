"""The second of two trainings ends when it is behind the first at the same point, and only there."""

from pathlib import Path

from shunter.engine.metrics import Metrics
from shunter.engine.results import EpochReport
from shunter.engine.stopping import StopKind, StopReason
from shunter.tasks.baselines import RateComparison


def report(samples: int, ne: float) -> EpochReport:
    return EpochReport(
        epoch=1,
        step=samples,
        samples_seen=samples,
        train_logloss=0.5,
        validation=Metrics(auc=0.6, logloss=0.5, ne=ne, calibration=1.0, rows=10, base_rate=0.5),
        train_seconds=1.0,
        wait_seconds=0.0,
        compute_seconds=1.0,
    )


def test_only_what_is_behind_after_enough_samples_has_lost(tmp_path: Path) -> None:
    comparison = RateComparison(tmp_path / "lr.json", "ne", least_samples=100)
    for samples, ne in ((50, 0.9), (100, 0.8), (200, 0.7)):
        comparison.lead(report(samples, ne))
    for samples, ne in ((50, 0.95), (100, 0.79), (150, 0.99), (200, 0.7)):
        comparison.compare(report(samples, ne))
        assert comparison.lost is None
    comparison.compare(report(200, 0.71))
    assert comparison.lost == StopReason(StopKind.PRUNED, details={"samples": 200})


def test_a_later_attempt_knows_the_first(tmp_path: Path) -> None:
    RateComparison(tmp_path / "new" / "lr.json", "ne", least_samples=1).lead(report(100, 0.8))
    later = RateComparison(tmp_path / "new" / "lr.json", "ne", least_samples=1)
    later.compare(report(100, 0.9))
    assert later.lost
    (tmp_path / "new" / "lr.json").write_text("{")
    damaged = RateComparison(tmp_path / "new" / "lr.json", "ne", least_samples=1)
    damaged.compare(report(100, 0.9))
    assert damaged.lost is None
