"""Numbers, lengths and labels of a day that are unlike those before are found, and others are not."""

import json
from collections.abc import Callable, Sequence
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.retraining.figures import LEVELS, MOST_SAMPLED, DayFigures, FieldFigures, ValueSample
from shunter.retraining.findings import base_rate_finding, drift_findings, value_drift
from shunter.retraining.inspection import choose_days
from shunter.retraining.nightly_request import DriftLimits
from tests.retraining.conftest import Log, clicks, day

LIMITS = DriftLimits()


def numbers(values: np.ndarray) -> FieldFigures:
    sample = ValueSample()
    sample.add(values)
    return FieldFigures(values=len(values), missing_share=0.0, quantiles=sample.quantiles(), sampled=len(sample.values))


def figures(number: int, rows: int, positives: int, **fields: FieldFigures) -> DayFigures:
    return DayFigures(
        day=date(2026, 1, 1) + timedelta(number), rows=rows, rejected=0, positives=positives, fields=fields
    )


def kinds(log: Log, number: int) -> list[tuple[str, str | None]]:
    plan, _ = choose_days(log.request(), day(number), log.folder / "kept")
    return [(finding.kind, finding.column) for finding in plan.findings if finding.day == day(number)]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda frame: frame.with_columns(pl.col("price") * 100), ("distribution", "price")),
        (lambda frame: frame.with_columns(tags=pl.lit("new|blue|red|old")), ("lengths", "tags")),
        (lambda frame: clicks(8, base_rate=0.45), ("labels", None)),
    ],
)
def test_a_change_of_a_day_is_found(
    log: Log, change: Callable[[pl.DataFrame], pl.DataFrame], found: tuple[str, str | None]
) -> None:
    log.write(*range(1, 8))
    log.write(8, change=change)
    assert found in kinds(log, 8)


def test_figures_of_before_have_no_quantiles_and_are_read(log: Log) -> None:
    log.write(*range(1, 8))
    log.write(8, change=lambda frame: frame.with_columns(pl.col("price") * 100))
    assert ("distribution", "price") in kinds(log, 8)
    for path in (log.folder / "kept").iterdir():
        known = read_json(path)
        for field in known["fields"].values():
            del field["quantiles"], field["sampled"]
        write_json(path, json.dumps(known))
    assert kinds(log, 8) == []
    new, old = numbers(np.arange(500.0)), FieldFigures(values=500, missing_share=0.0)
    assert value_drift(new, [old], 2) is None
    assert value_drift(old, [new], 2) is None


def series(random: np.random.Generator, days: int, rows: int) -> list[DayFigures]:
    """Days that differ by chance, and by a little that is significant in 100,000 rows."""
    return [
        figures(
            number,
            rows,
            int(random.binomial(rows, 0.3 + 0.02 * random.random())),
            price=numbers(random.gamma(2.0, 10.0 * random.uniform(0.95, 1.05), rows)),
            age=numbers(random.normal(0.0, 1.0, rows)),
        )
        for number in range(days)
    ]


@pytest.mark.parametrize("rows", [150, 20_000])
def test_at_most_one_day_in_twenty_is_a_false_alarm_at_any_size(rows: int) -> None:
    days = series(np.random.default_rng(rows), 67, rows)
    alarms = [bool(drift_findings(days[place], days[place - 7 : place], LIMITS)) for place in range(7, 67)]
    assert sum(alarms) <= 3


def test_days_that_always_differ_are_the_usual_for_each_other() -> None:
    random = np.random.default_rng(0)
    days = [figures(one, 2_000, 600, price=numbers(random.normal(3 * (one % 2), 1.0, 2_000))) for one in range(9)]
    assert drift_findings(days[8], days[1:8], LIMITS) == []
    steady: Sequence[DayFigures] = [day for day in days if day.day.toordinal() % 2 == days[0].day.toordinal() % 2]
    assert [one.kind for one in drift_findings(days[1], steady, LIMITS)] == ["distribution"]
    dearer = figures(8, 2_000, 600, price=numbers(random.normal(300.0, 1.0, 2_000)))
    assert [one.kind for one in drift_findings(dearer, days[1:8], LIMITS)] == ["distribution"]


def test_a_base_rate_that_chance_explains_quarantines_no_day() -> None:
    assert base_rate_finding(figures(0, 1_000, 2), 0.005, LIMITS) is None
    assert base_rate_finding(figures(0, 100_000, 200), 0.005, LIMITS) is not None


def test_the_sample_is_exact_while_small_and_close_when_full_however_batches_come() -> None:
    random = np.random.default_rng(0)
    small = np.append(random.normal(size=200), np.nan)
    sample = ValueSample()
    for batch in np.array_split(small, 3):
        sample.add(batch)
    assert sample.quantiles() == tuple(np.quantile(small[:-1], LEVELS, method="inverted_cdf"))
    many = random.normal(size=50_000)
    whole, parts = ValueSample(), ValueSample()
    whole.add(many)
    for batch in np.array_split(many, 7):
        parts.add(batch)
    assert len(whole.values) == MOST_SAMPLED
    assert whole.quantiles() == parts.quantiles()
    assert np.median(many) == pytest.approx(whole.quantiles()[50], abs=0.06)
    assert ValueSample().quantiles() == ()


def test_labels_that_are_numbers_drift_by_their_values_and_are_wrong_if_all_are_equal(log: Log) -> None:
    schema = yaml.safe_load((log.folder / "schema.yaml").read_text())
    (log.folder / "schema.yaml").write_text(
        yaml.safe_dump({**schema, "label": {"column": "price", "loss": "mse"}, "numeric": []})
    )
    log.write(1, 2, 3, 4)
    log.write(5, change=lambda frame: frame.with_columns(price=pl.col("price") * 4))
    log.write(6, change=lambda frame: frame.with_columns(price=pl.lit(3.0)))
    plan, _ = choose_days(log.request(), day(6), log.folder / "kept")
    assert plan.held_out == day(5)
    assert [(one.day, one.kind) for one in plan.findings if one.column == "price"] == [
        (day(5), "distribution"),
        (day(6), "base rate"),
    ]
