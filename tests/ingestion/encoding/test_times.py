"""Points in time, each value read by itself; what a column mixes is told."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shunter.errors import DataError
from shunter.ingestion.encoding.times import moments, see
from shunter.ingestion.schema import Schema
from shunter.ingestion.time_format import AS_WRITTEN, TimeReading
from tests.ingestion.conftest import Ingest

MOMENT = datetime(2026, 1, 12, 22, 5, 9, tzinfo=UTC)


def read(*texts: str | None, **how: Any) -> list[float]:
    return moments(pl.Series(texts, dtype=pl.String), TimeReading(**how)).tolist()


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-12 22:05:09",
        "2026-01-12T22:05:09Z",
        "2026-01-12T22:05:09.000",
        "2026-01-12 22:05:09 UTC",
        "2026-01-12 22:05:09 GMT",
        "2026-01-13T03:35:09+05:30",
        "2026-01-12 18:05:09 -0400",
        "2026-01-12T23:05:09+01",
        "2026/1/12 10:05:09 PM",
        "2026-01-12 10:05:09pm",
        "20260112T220509Z",
        "13.01.2026 00:05:09 +02:00",
        "12/Jan/2026:22:05:09 +0000",
        "Mon, 12 Jan 2026 22:05:09 GMT",
        "January 12, 2026 10:05:09 PM",
        " 12-Jan-2026 22:05:09 ",
    ],
)
def test_one_moment_in_many_ways_of_writing(text: str) -> None:
    # Beside others, so that no first value decides for those that follow.
    found = read("2026-01-01", text, "never", None, "2026-01-12T22:05:09+00:00", day_first=True)
    assert found[1] == found[4] == MOMENT.timestamp() * 1e6
    assert np.isnan(found[2:4]).all()


@pytest.mark.parametrize(
    "text", ["2026-99-01", "2026-02-29", "2026-01-12 25:00", "2026-01-12 13:00 PM", "31/31/2026", "12 Foo 2026", "12"]
)
def test_a_date_that_does_not_exist_is_none(text: str) -> None:
    assert np.isnan(read(text, kind="dates", day_first=True)).all()


def test_midnight_and_noon_and_parts_of_a_second() -> None:
    found = read("2026-01-12 12:00 AM", "2026-01-12 00:00", "2026-01-12 12:30 pm", "2026-01-12 12:30:00.0000015")
    assert found[0] == found[1]
    assert found[3] - found[2] == 1


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("seconds", "1768255509"),
        ("milliseconds", "1768255509000"),
        ("nanoseconds", "1768255509000000000"),
        ("%d.%m.%Y %H:%M:%S", "12.01.2026 22:05:09"),
        ("%Y-%m-%dT%H:%M:%S%z", "2026-01-12T23:05:09+0100"),
        ("month_first", "1/12/2026 22:05:09"),
        ("day_first", "12/1/2026 22:05:09"),
    ],
)
def test_the_schema_may_say_how_times_are_written(form: str, text: str) -> None:
    found = read(text, "never", format=form)
    assert found[0] == MOMENT.timestamp() * 1e6
    assert np.isnan(found[1])


def settle(texts: Sequence[str], max_bad_share: float = 0.01) -> TimeReading:
    return see(pl.Series(texts)).settle("when", max_bad_share)


SECONDS, MILLISECONDS = ["1768255509"] * 200, ["1768255509000"] * 100


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (SECONDS + MILLISECONDS, r"mixes seconds \(1768255509\) and milliseconds \(1768255509000\)"),
        ([*SECONDS, *["2026-01-12"] * 50], r"mixes seconds \(1768255509\) and dates \(2026-01-12\)"),
        (["13/01/2026", "01/13/2026"], r"day first \(13/01/2026\) and .*month first \(01/13/2026\)"),
        (["03/04/2026", "05.06.2026"], "'03/04/2026', in which day and month cannot be distinguished: write `time: "),
    ],
)
def test_what_is_mixed_or_unclear_is_refused_with_the_values(texts: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        settle(texts)
    assert "format:" in str(caught.value)


def test_what_all_values_together_tell() -> None:
    assert settle(["03/04/2026", "13/04/2026"]) == TimeReading(day_first=True)
    assert settle(["03/04/2026", "04/13/2026"]) == TimeReading(day_first=False)
    assert settle([*SECONDS, "1768255509000"]) == TimeReading(unit="seconds")
    assert settle([*SECONDS, "2026-01-12"]) == TimeReading(kind="numbers")
    assert settle(["2026-01-12"] * 200 + ["0"]) == TimeReading(kind="dates")
    for plain in (SECONDS, ["0", "1", "4000000000000"], ["2026-01-12", "2026-01-12T10:00Z", "4/4/2026"], []):
        assert settle(plain) == AS_WRITTEN


@pytest.mark.parametrize("form", ["fortnights", ""])
def test_a_format_that_is_none_is_refused(form: str) -> None:
    with pytest.raises(ValueError, match="of the time: use seconds, "):
        Schema.model_validate({"label": "click", "numeric": ["price"], "time": {"column": "t", "format": form}})


def test_a_schema_without_a_format_is_written_as_ever(clicks_schema: dict[str, Any]) -> None:
    plain = Schema.model_validate({**clicks_schema, "time": "when"})
    assert "time_format" not in plain.model_dump()
    assert Schema.model_validate({**clicks_schema, "time": {"column": "when"}}) == plain
    settled = Schema.model_validate({**clicks_schema, "time": {"column": "when", "format": "day_first"}})
    assert Schema.model_validate(settled.model_dump()) == settled


def test_a_log_whose_order_of_day_and_month_only_its_last_row_tells(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    days = [1 + row % 11 for row in range(199)] + [28]
    when = [f"{day:02}/03/2026 10:00" for day in days]
    clicks.with_columns(when=pl.Series(when), price=pl.Series(days, dtype=pl.Float64)).write_csv(tmp_path / "log.csv")

    dataset, report = ingest_file(tmp_path / "log.csv", {**clicks_schema, "time": "when"})

    test = np.load(dataset.directory / "test.dense.npy")[:, 0]
    train = np.load(dataset.directory / "train.dense.npy")[:, 0]
    assert report.quarantined_rows == 0
    assert train.max() < test.min()
    assert dataset.time_range == (1_772_359_200e6, 1_774_692_000e6)
    times = np.load(dataset.directory / "test.time.npy")  # beside each row, for bounds by day
    assert len(times) == dataset.splits["test"].rows
    assert not (dataset.directory / "train.time.npy").exists()
    order = np.argsort(times, kind="stable")
    assert (np.diff(test[order]) >= 0).all()
