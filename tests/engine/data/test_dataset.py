"""The day of each row, from times of any unit since 1970."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shunter.engine.data.dataset import days_of
from tests.engine.synthetic import write_dataset

SECONDS = 1_700_000_000.0


@pytest.mark.parametrize("per_second", [1, 1e3, 1e6, 1e9])
def test_days_are_those_of_the_calendar_whatever_the_unit(tmp_path: Path, per_second: float) -> None:
    dataset = write_dataset(tmp_path, rows=200)
    rows = dataset.splits["test"].rows
    times = SECONDS + 3_600.0 * np.arange(rows)
    np.save(tmp_path / "test.time.npy", times * per_second)
    timed = replace(dataset, time_range=(SECONDS * per_second, float(times[-1] * per_second)))
    days = days_of(timed, "test")
    assert days is not None
    dates = days.astype("datetime64[D]")
    assert str(dates[0]) == "2023-11-14"
    assert (np.diff(days) >= 0).all()
    assert len(np.unique(days)) == int(days[-1] - days[0]) + 1


def test_without_times_or_with_times_of_another_kind_no_day_is_known(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=200)
    assert days_of(dataset, "test") is None
    assert days_of(replace(dataset, time_range=(1.7e9, 1.8e9)), "test") is None  # ingested before they were kept
    np.save(tmp_path / "test.time.npy", np.arange(dataset.splits["test"].rows, dtype=np.float64))
    assert days_of(replace(dataset, time_range=(0.0, 29.0)), "test") is None
