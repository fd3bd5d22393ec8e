"""New rows are sorted into days once, and a night is asked to judge on the newest of them."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shunter.errors import DamagedFileError, DataError, UnsupportedError
from shunter.ingestion.schema import Schema
from shunter.retraining import new_rows
from shunter.retraining.nightly_request import NightlyRequest

FIRST = datetime(2026, 5, 1, 23, tzinfo=UTC)
SCHEMA = {"label": "click", "categorical": ["item"], "time": "when"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[NightlyRequest]:
    """Requests of the nights."""
    found: list[NightlyRequest] = []
    monkeypatch.setattr(new_rows, "run", lambda flow, request: found.append(request))
    return found


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    (tmp_path / "schema.yaml").write_text("label: click\ncategorical: [item]\ntime: when\n")
    return str(tmp_path / "schema.yaml")


def rows(hours: int = 3) -> pl.DataFrame:
    when = pl.datetime_range(FIRST, FIRST.replace(day=2, hour=hours), "1h", eager=True)
    return pl.DataFrame({"when": when, "item": 7, "click": [0, 1] * (len(when) // 2) + [0] * (len(when) % 2)})


def test_rows_are_kept_by_day_and_once(asked: list[NightlyRequest], schema_file: str, shunter_home: Path) -> None:
    for _ in range(2):
        new_rows.update("shop", rows(), schema_file, {"nightly_epochs": 2})
    kept = sorted((shunter_home / "frames" / "days" / "shop").glob("*/*.parquet"))
    assert [(path.parent.name, pl.read_parquet(path).height) for path in kept] == [("2026-05-01", 1), ("2026-05-02", 4)]
    request = asked[-1]
    assert (request.register_as, request.days.day, request.challenger.nightly_epochs) == ("shop", date(2026, 5, 2), 2)


def test_rows_that_have_changed_since_are_not_learned(
    asked: list[NightlyRequest], schema_file: str, shunter_home: Path
) -> None:
    new_rows.update("shop", rows(), schema_file, {})
    path = next((shunter_home / "frames" / "days" / "shop").glob("*/*.parquet"))
    pl.read_parquet(path).with_columns(1 - pl.col("click")).write_parquet(path)
    with pytest.raises(DamagedFileError) as caught:
        new_rows.update("shop", rows(hours=5)[2:], schema_file, {})
    assert caught.value.path == path
    assert len(asked) == 1


@pytest.mark.parametrize(
    "values",
    [
        [int(FIRST.timestamp())],
        [int(FIRST.timestamp() * 1000)],
        ["2026-05-01T23:00:00Z"],
        ["2026-05-01"],
        [date(2026, 5, 1)],
    ],
)
def test_days_of_times_in_every_form(values: list[Any]) -> None:
    found = new_rows.days_of(pl.Series([*values, None]), Schema.model_validate(SCHEMA))
    assert found.to_list() == [date(2026, 5, 1), None]


def test_without_a_time_there_are_no_days(asked: list[NightlyRequest], tmp_path: Path, schema_file: str) -> None:
    (tmp_path / "timeless.yaml").write_text("label: click\ncategorical: [item]\n")
    with pytest.raises(UnsupportedError):
        new_rows.update("shop", rows(), str(tmp_path / "timeless.yaml"), {})
    with pytest.raises(DataError):
        new_rows.update("shop", rows().with_columns(when=pl.lit(None, pl.Datetime)), schema_file, {})
    with pytest.raises(DataError):
        new_rows.update("shop", rows().drop("click"), schema_file, {})
    assert not asked
