"""Carbon intensity of electricity: one number, or one number for each hour of the day."""

import csv
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from shunter.errors import RequestError
from shunter.frozen import Frozen

HOURS = 24


class Grid(Frozen):
    """Carbon intensity in grams of CO2 equivalent per kilowatt hour, and the hour at which the work begins."""

    grams_per_kwh: tuple[float, ...] = Field(
        description="Carbon intensity in grams of CO2 equivalent per kWh: one value, or one for each hour (UTC)."
    )
    start_hour: float = Field(default=0.0, description="Hour of the day, in UTC, at which the training job begins.")

    @classmethod
    def read(cls, text: str, now: datetime | None = None) -> Self:
        """Parse the option `--grid`: a number, or a CSV file with columns `hour` (0 to 23, UTC) and `grams_per_kwh`.

        Args:
            text: Value of the option `--grid`.
            now: Start of the work; if None, the current time.

        Raises:
            RequestError: the file cannot be read or lacks an hour, or a figure is not a finite number of at least 0.
        """
        now = (now or datetime.now(UTC)).astimezone(UTC)
        start_hour = now.hour + now.minute / 60 + now.second / 3600
        try:
            figures = (float(text),)
        except ValueError:
            figures = _by_hour(Path(text))
        if not all(math.isfinite(figure) and figure >= 0 for figure in figures):
            raise RequestError(
                f"--grid {text}: the carbon intensity must be a number of at least 0, in grams of CO2 "
                "equivalent per kWh."
            )
        return cls(grams_per_kwh=figures, start_hour=start_hour)

    def mean_grams_per_kwh(self, hours: ArrayLike) -> NDArray[np.float64]:
        """Return the mean carbon intensity of constant work from now on, for each duration in hours; NaN stays NaN."""
        hours = np.asarray(hours, dtype=np.float64)
        by_hour = np.resize(np.array(self.grams_per_kwh), HOURS)
        edges = np.concatenate([[0.0], np.cumsum(by_hour)])

        def until(moment: NDArray[np.float64]) -> NDArray[np.float64]:
            days, hour = np.divmod(moment, HOURS)
            return days * edges[-1] + np.interp(hour, np.arange(HOURS + 1), edges)

        begin = np.full_like(hours, self.start_hour)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (until(begin + hours) - until(begin)) / hours
        return np.where(hours > 0, mean, np.where(np.isnan(hours), np.nan, by_hour[int(self.start_hour) % HOURS]))


def _by_hour(path: Path) -> tuple[float, ...]:
    try:
        with path.open(newline="") as file:
            rows = {int(row["hour"]): float(row["grams_per_kwh"]) for row in csv.DictReader(file)}
    except OSError as error:
        raise RequestError(
            f"--grid {path} is neither a number nor a readable file ({error.strerror}): give the carbon "
            "intensity in grams of CO2 equivalent per kWh, or another file."
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(
            f"The file of --grid {path} needs the columns hour and grams_per_kwh, both of numbers."
        ) from error
    missing = [hour for hour in range(HOURS) if hour not in rows]
    if missing or len(rows) != HOURS:
        wrong = f"{missing[0]} is missing" if missing else f"{max(rows)} is none"
        raise RequestError(f"The file of --grid {path} needs one row for each hour from 0 to 23; {wrong}.")
    return tuple(rows[hour] for hour in range(HOURS))
