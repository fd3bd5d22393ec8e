"""Days that are late, missing, empty, copied, broken or drifted: each is told in a sentence and survived."""

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.errors import DataError
from shunter.retraining.inspection import choose_days
from shunter.retraining.plan import NightlyPlan, yesterday
from tests.retraining.conftest import SCHEMA, Log, clicks, day


def planned(log: Log, number: int, kept: str = "kept", **options: object) -> NightlyPlan:
    request = log.request(**options)  # pyright: ignore[reportArgumentType]
    return choose_days(request, day(number), log.folder / kept)[0]


def told(plan: NightlyPlan, number: int | None) -> list[tuple[str, str]]:
    wanted = None if number is None else day(number)
    return [(one.kind, one.words) for one in plan.findings if one.day == wanted]


def test_newest_day_judges_and_the_days_before_it_teach(log: Log) -> None:
    log.write(1, 2, 3, 4, 5)
    plan = planned(log, 5, train_days=3)
    assert plan.held_out == day(5)
    assert plan.training == (day(2), day(3), day(4))
    assert plan.findings == ()
    assert plan.missing == ()


def test_missing_newest_day_is_replaced_by_the_one_before_until_it_is_too_late(log: Log) -> None:
    log.write(1, 2, 4)
    plan = planned(log, 6, max_late_days=2)
    assert plan.held_out == day(4)
    assert plan.missing == (day(3), day(5), day(6))
    assert told(plan, 6) == [
        ("missing", f"{day(6)} is missing, so models are evaluated on {day(4)} instead; it is used when it arrives.")
    ]
    assert told(plan, 3) == [("missing", f"{day(3)} is missing and is used when it arrives.")]
    with pytest.raises(DataError, match="2026-05-07"):
        planned(log, 7, max_late_days=2)


def test_day_that_was_missing_last_night_is_told_when_it_comes(log: Log) -> None:
    log.write(1, 2, 3, 4)
    plan, _ = choose_days(log.request(), day(4), log.folder / "kept", [day(2)])
    assert told(plan, 2) == [("late", f"{day(2)} came late: it was missing last time and is used from now on.")]


def test_day_that_is_not_over_and_files_without_a_date_are_left(log: Log) -> None:
    log.write(1, 2, 3, 4)
    (log.folder / "days" / "latest.parquet").write_text("")
    plan = planned(log, 3)
    assert plan.held_out == day(3)
    assert [kind for kind, _ in told(plan, 4)] == ["not over"]
    assert [kind for kind, _ in told(plan, None)] == ["undated"]


def test_days_make_sessions_of_their_own_and_do_not_lack_their_columns(log: Log) -> None:
    sessions = {"gap_minutes": 30, "column": "visit", "position": "place", "within_day": True}
    keys = {**SCHEMA, "user": "user", "numeric": ["price", "place"], "sessions": sessions}
    (log.folder / "schema.yaml").write_text(yaml.safe_dump(keys))
    log.write(1, 2, 3)
    log.write(4, change=lambda frame: frame.head(0))
    log.write(5, change=lambda frame: frame.drop("user"))
    plan, logs = choose_days(log.request(), day(5), log.folder / "kept")
    assert plan.training == (day(1), day(2), day(3))
    assert [kind for kind, _ in told(plan, 4)] == ["empty"]
    assert {kind for number in (1, 2, 3) for kind, _ in told(plan, number)} == set()
    present = [~np.isnan(next(iter(logs[day(number)].batches())).columns.numeric[1]) for number in (3, 5)]
    assert (present[0].all(), present[1].any()) == (True, False)


def test_empty_truncated_and_rowless_days_are_left_out(log: Log) -> None:
    log.write(1, 2, 6, 7)
    log.path(3).write_bytes(b"")
    log.path(4).write_bytes(log.path(2).read_bytes()[:500])
    log.write(5, change=lambda frame: frame.head(0))
    plan = planned(log, 7)
    assert plan.training == (day(1), day(2), day(6))
    assert [kind for kind, _ in told(plan, 3)] == ["empty"]
    assert [kind for kind, _ in told(plan, 4)] == ["unreadable"]
    assert [kind for kind, _ in told(plan, 5)] == ["empty"]


def test_copies_within_a_day_and_of_a_day_are_read_once(log: Log) -> None:
    log.write(1, 2, 4)
    log.path(3).write_bytes(log.path(2).read_bytes())
    copy = log.path(4).with_name(f"{day(4)} (1).parquet")
    copy.write_bytes(log.path(4).read_bytes())
    plan, logs = choose_days(log.request(), day(4), log.folder / "kept")
    assert plan.training == (day(1), day(2))
    assert [kind for kind, _ in told(plan, 3)] == ["duplicated"]
    assert [kind for kind, _ in told(plan, 4)] == ["duplicated"]
    assert len(logs[day(4)].source.paths) == 1


def test_newest_day_with_few_rows_is_taken_for_unfinished_but_learned_later(log: Log) -> None:
    log.write(1, 2, 3)
    log.write(4, change=lambda frame: frame.head(40))
    plan = planned(log, 4)
    assert plan.held_out == day(3)
    assert [kind for kind, _ in told(plan, 4)] == ["unfinished"]
    log.write(5)
    assert day(4) in planned(log, 5).training


def test_columns_that_go_and_come_and_a_label_that_goes(log: Log) -> None:
    log.write(1, 2)
    log.write(3, change=lambda frame: frame.drop("click"))
    log.write(4, change=lambda frame: frame.drop("price", "tags").with_columns(colour=pl.lit("red")))
    plan, logs = choose_days(log.request(), day(4), log.folder / "kept")
    assert plan.training == (day(1), day(2))
    assert [kind for kind, _ in told(plan, 3)] == ["column gone"]
    kinds = [kind for kind, _ in told(plan, 4)]
    assert kinds.count("column gone") == 2
    assert kinds.count("column new") == 1
    [batch] = logs[day(4)].batches()
    assert np.isnan(batch.columns.numeric).all()


def test_types_that_change_are_read_where_they_can_be_and_else_count_as_missing(log: Log) -> None:
    log.write(1, 2, 3)
    log.write(4, change=lambda frame: frame.with_columns(pl.col("price").cast(pl.String), user=pl.lit([1, 2])))
    log.write(5, change=lambda frame: frame.with_columns(price=pl.lit("cheap"), user=pl.col("user").cast(pl.String)))
    plan, logs = choose_days(log.request(), day(5), log.folder / "kept")
    assert plan.held_out == day(5)
    four, five = (next(logs[day(number)].batches()).columns for number in (4, 5))
    assert not np.isnan(four.numeric).any()
    assert (four.keys[0] == 0).all()
    assert np.isnan(five.numeric).all()
    assert set(five.keys[0]) == set(next(logs[day(1)].batches()).columns.keys[0]), "5 and '5' are one value"
    assert any("user cannot be read" in words for kind, words in told(plan, 4) if kind == "type changed")
    assert any("price is a text" in words for kind, words in told(plan, 5) if kind == "type changed")


def test_day_with_broken_labels_is_set_aside_until_most_days_are_like_it(log: Log) -> None:
    log.write(1, 2, 3)
    log.write(4, change=lambda frame: frame.with_columns(click=pl.lit(0)))
    plan = planned(log, 4)
    assert plan.held_out == day(3)
    assert [kind for kind, _ in told(plan, 4)] == ["base rate"]
    for number in range(5, 10):
        clicks(number, base_rate=0.9).write_parquet(log.path(number))
    assert planned(log, 5).held_out == day(3)
    settled = planned(log, 9)
    assert settled.held_out == day(9)
    assert set(settled.training) == {day(number) for number in range(5, 9)}


def test_fields_that_drift_are_told_and_used(log: Log) -> None:
    log.write(1, 2, 3, 4)
    random = np.random.default_rng(0)
    changed = clicks(5).with_columns(
        user=pl.Series(random.integers(1_000, 9_000, 400)),
        price=pl.when(pl.col("price") > 15).then(None).otherwise(pl.col("price")),
    )
    changed.write_parquet(log.path(5))
    plan = planned(log, 5)
    assert plan.held_out == day(5)
    about = [(kind, words.split(" on ")[0]) for kind, words in told(plan, 5)]
    assert {kind for kind, _ in about} == {"cardinality", "new values", "missing values", "distribution"}
    assert any("100%" in words for kind, words in told(plan, 5) if kind == "new values")
    assert not any("shop" in words for _, words in told(plan, 5))


def test_days_like_each_other_are_not_told_of(log: Log) -> None:
    log.write(*range(1, 9))
    assert planned(log, 8).findings == ()


def test_known_figures_are_not_computed_again_but_a_changed_day_is(log: Log) -> None:
    log.write(1, 2, 3)
    first = planned(log, 3)
    kept = {path.name: path.stat().st_mtime_ns for path in (log.folder / "kept").iterdir()}
    assert len(kept) == 3
    assert planned(log, 3) == first
    assert {path.name: path.stat().st_mtime_ns for path in (log.folder / "kept").iterdir()} == kept
    log.write(2, change=lambda frame: frame.head(300))
    planned(log, 3)
    assert len(list((log.folder / "kept").iterdir())) == 4


def test_day_that_was_named_is_judged_on_or_refused_with_the_reason(log: Log) -> None:
    log.write(1, 2, 3, 4)
    log.path(3).write_bytes(b"")
    assert choose_days(log.request(2), day(2), log.folder / "kept")[0].held_out == day(2)
    with pytest.raises(DataError, match="2026-05-03"):
        choose_days(log.request(3), day(3), log.folder / "kept")
    with pytest.raises(DataError, match="2026-05-01"):
        choose_days(log.request(1), day(1), log.folder / "kept")


def test_csv_days_are_read_like_parquet_days(log: Log, tmp_path: Path) -> None:
    log.write(1, 2)
    clicks(3).drop("shop").write_csv(log.path(3, "csv"))
    plan, logs = choose_days(log.request(), day(3), log.folder / "kept")
    assert plan.held_out == day(3)
    assert [kind for kind, _ in told(plan, 3)] == ["column gone"]
    assert next(logs[day(3)].batches()).columns.rows == 400


@pytest.mark.parametrize(
    ("now", "zone", "expected"),
    [
        (datetime(2026, 5, 2, 0, 30, tzinfo=UTC), "UTC", 1),
        (datetime(2026, 5, 2, 23, 30, tzinfo=UTC), "Europe/Berlin", 2),
        (datetime(2026, 5, 3, 1, 30, tzinfo=UTC), "America/Los_Angeles", 1),
    ],
)
def test_day_ends_by_the_clock_of_the_time_zone(now: datetime, zone: str, expected: int) -> None:
    assert yesterday(now, ZoneInfo(zone)) == day(expected)
