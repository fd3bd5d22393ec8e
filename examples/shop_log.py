"""A small made-up click log for the examples: users click the items that suit their taste."""

from pathlib import Path

import numpy as np
import pandas as pd

SCHEMA = "label: click\nnumeric: [price]\ncategorical: [user, item]\ntime: time\n"


def click_log(rows: int = 4_000, first_day: str = "2026-01-01", seed: int = 0) -> pd.DataFrame:
    """Return clicks of 100 users on 150 items, one every 20 seconds; the tastes are the same for every seed."""
    taste = np.random.default_rng(42).normal(0, 1.5, (100, 4)) @ np.random.default_rng(43).normal(0, 1, (4, 150))
    random = np.random.default_rng(seed)
    user, item = random.integers(0, 100, rows), random.zipf(1.5, rows) % 150
    return pd.DataFrame(
        {
            "time": pd.date_range(first_day, periods=rows, freq="20s"),
            "user": [f"u{one}" for one in user],
            "item": [f"i{one}" for one in item],
            "price": random.lognormal(1, 0.5, rows).round(2),
            "click": (random.random(rows) < 1 / (1 + np.exp(1 - taste[user, item]))).astype(int),
        }
    )


def write_schema(folder: Path) -> Path:
    """Write the schema of the log into a folder, and return its path."""
    path = folder / "schema.yaml"
    path.write_text(SCHEMA)
    return path
