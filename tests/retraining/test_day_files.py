"""Which files are found for which day, whatever else lies beside them."""

import tempfile
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import DataError, RequestError
from shunter.retraining.day_files import find_days

days = st.dates(min_value=date(2001, 1, 1), max_value=date(2098, 12, 31))
WRITTEN = ("%Y-%m-%d", "%Y%m%d", "%Y_%m_%d", "%Y.%m.%d")


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rows")


@settings(max_examples=20, deadline=None)
@given(wanted=st.sets(days, min_size=1, max_size=6), written=st.sampled_from(WRITTEN), parts=st.integers(1, 3))
def test_every_day_is_found_with_its_files_in_whatever_way_it_is_written(
    wanted: set[date], written: str, parts: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for day in wanted:
            text = day.strftime(written)
            write(folder, *(f"log/{text}/part-{part}.csv" for part in range(parts)), f"log/{text}/_SUCCESS")
            write(folder, f"flat/click_{text}_v2.parquet", f"flat/other_{text}_v2.parquet", f"flat/{text}.tmp")
        write(folder, "flat/click_latest_v2.parquet", "flat/click_2026-02-30_v2.parquet")
        for pattern in (f"{folder}/log", f"{folder}/log/{{date}}/part-*.csv", f"{folder}/log/{{date:{written}}}/*.csv"):
            found = find_days(pattern)
            assert list(found.days) == sorted(wanted)
            assert {len(paths) for paths in found.days.values()} == {parts}
            assert not found.undated
        flat = find_days(f"{folder}/flat/click_{{date}}_v?.parquet")
        assert {day: [path.name for path in paths] for day, paths in flat.days.items()} == {
            day: [f"click_{day.strftime(written)}_v2.parquet"] for day in sorted(wanted)
        }
        assert {path.name for path in flat.undated} == {"click_latest_v2.parquet", "click_2026-02-30_v2.parquet"}


def test_date_over_several_folders_is_read_as_it_is_written(tmp_path: Path) -> None:
    write(tmp_path, "2026/05/01/a.csv", "2026/05/02/a.csv", "2026/05/02/b.csv", "2026/31/05/a.csv")
    found = find_days(f"{tmp_path}/{{date:%Y/%m/%d}}/*.csv")
    assert {day.isoformat(): len(paths) for day, paths in found.days.items()} == {"2026-05-01": 1, "2026-05-02": 2}
    by_number = find_days(f"{tmp_path}/{{date:%Y/%d/%m}}/*.csv")
    assert date(2026, 5, 31) in by_number.days


def test_numbers_that_are_no_dates_are_not_taken_for_some(tmp_path: Path) -> None:
    write(tmp_path, "part-1234567890.csv", "v20260501123.csv", "clicks-20260501.csv", "2026-0501.csv")
    assert [path.name for path in find_days(str(tmp_path)).days[date(2026, 5, 1)]] == ["clicks-20260501.csv"]


@pytest.mark.parametrize(
    ("pattern", "error", "message"),
    [
        ("", RequestError, "name the daily files with --data"),
        ("{date}/{date}.csv", RequestError, "2 times"),
        ("{date:%Y-%m}.csv", RequestError, "does not name a day"),
        ("{date:%Y-%m-%d %H}.csv", RequestError, "does not name a day"),
        ("nothing-{date}.csv", DataError, "has a date in its name"),
    ],
)
def test_mistakes_in_the_pattern_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, error: type[Exception], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        find_days(pattern)


def test_days_outside_of_the_data_roots_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "open/2026-05-01.csv", "closed/2026-05-01.csv")
    (tmp_path / "open" / "2026-05-02.csv").symlink_to(tmp_path / "closed" / "2026-05-01.csv")
    monkeypatch.setenv("SHUNTER_DATA_ROOTS", str(tmp_path / "open"))
    for pattern in (f"{tmp_path}/closed/{{date}}.csv", f"{tmp_path}/open/../closed", f"{tmp_path}/open/{{date}}.csv"):
        with pytest.raises(RequestError):
            find_days(pattern)
