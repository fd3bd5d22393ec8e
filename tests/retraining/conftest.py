"""A log of days, in whatever state."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.retraining.nightly_request import NightlyRequest

FIRST = date(2026, 5, 1)
SCHEMA = {
    "label": "click",
    "numeric": ["price"],
    "categorical": ["user", "shop"],
    "multi_valued": [{"column": "tags", "separator": "|"}],
    "time": "when",
}


def day(number: int) -> date:
    """Day 1 is the first of May."""
    return FIRST + timedelta(days=number - 1)


def clicks(seed: int, rows: int = 400, base_rate: float = 0.3) -> pl.DataFrame:
    """Rows with a column of each kind."""
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "click": (random.random(rows) < base_rate).astype(int),
            "price": random.gamma(2.0, 10.0, rows),
            "user": random.integers(0, 30, rows),
            "shop": [("north", "south", "east")[number] for number in random.integers(0, 3, rows)],
            "tags": [("new", "new|blue", "")[number] for number in random.integers(0, 3, rows)],
            "when": [f"2026-05-01T00:00:{number % 60:02}" for number in range(rows)],
        }
    )


class Log:
    """Days in a folder; `request` reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
        (folder / "days").mkdir()

    def path(self, number: int, suffix: str = "parquet") -> Path:
        """File of a day."""
        return self.folder / "days" / f"{day(number)}.{suffix}"

    def write(self, *numbers: int, change: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame) -> None:
        """Write days."""
        for number in numbers:
            change(clicks(number)).write_parquet(self.path(number))

    def request(self, number: int | None = None, **options: object) -> NightlyRequest:
        """One night, judged on a day."""
        return NightlyRequest.model_validate(
            {
                "data": str(self.folder / "days"),
                "schema_file": str(self.folder / "schema.yaml"),
                "day": day(number) if number else None,
                **options,
            }
        )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """An empty log."""
    return Log(tmp_path)
