"""The second of two trainings ends when it is behind the first at the same point, and only there."""

from pathlib import Path

from shunter.engine.metrics import Metrics
from shunter.engine.results import EpochReport
from shunter.engine.stopping import StopKind, StopReason
from shunter.tasks.baselines import Race


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
    race = Race(tmp_path / "lr.json", "ne", least_samples=100)
    for samples, ne in ((50, 0.9), (100, 0.8), (200, 0.7)):
        race.lead(report(samples, ne))
    for samples, ne in ((50, 0.95), (100, 0.79), (150, 0.99), (200, 0.7)):
        race.follow(report(samples, ne))
        assert race.lost is None
    race.follow(report(200, 0.71))
    assert race.lost == StopReason(StopKind.PRUNED, details={"samples": 200})


def test_a_later_attempt_knows_the_first(tmp_path: Path) -> None:
    Race(tmp_path / "new" / "lr.json", "ne", least_samples=1).lead(report(100, 0.8))
    later = Race(tmp_path / "new" / "lr.json", "ne", least_samples=1)
    later.follow(report(100, 0.9))
    assert later.lost
    (tmp_path / "new" / "lr.json").write_text("{")
    damaged = Race(tmp_path / "new" / "lr.json", "ne", least_samples=1)
    damaged.follow(report(100, 0.9))
    assert damaged.lost is None
