"""Days of rows, from the time column of the log."""

from datetime import UTC, datetime

import numpy as np

from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset, SplitName

SECONDS_OF_DAY = 86_400
PER_SECOND = (1, 1e3, 1e6, 1e9)  # possible units of a time since 1970, per second
EARLIEST, LATEST = 1e8, 1e10  # plausible seconds since 1970


def days_of(dataset: Dataset, split: SplitName) -> np.ndarray | None:
    """Return the days since 1970 in UTC, int64 `[rows]`; None if rows have no times, or no times since 1970.

    Args:
        dataset: Data set.
        split: `validation` or `test`; the training part has no stored times.
    """
    if dataset.time_range is None:
        return None
    unit = _unit_of(*dataset.time_range)
    path = dataset.directory / f"{split}.time.npy"
    if unit is None or not path.exists():  # ingested by a version that stored no times
        return None
    times = read_array(path)
    assert len(times) == dataset.splits[split].rows, f"{path} holds a time for each row"
    return np.floor(times / unit / SECONDS_OF_DAY).astype(np.int64)


def date_texts(*times: float) -> list[str]:
    """Return ascending times as dates in UTC; an empty list if they are not times since 1970."""
    unit = _unit_of(times[0], times[-1])
    if unit is None:
        return []
    dates = [datetime.fromtimestamp(time / unit, UTC) for time in times]
    return [date.isoformat(sep=" ", timespec="seconds") for date in dates]


def _unit_of(first: float, last: float) -> float | None:
    return next((unit for unit in PER_SECOND if EARLIEST <= first / unit <= last / unit < LATEST), None)
