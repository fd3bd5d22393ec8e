"""A small log whose label depends on user and item, and its schema."""

import numpy as np
import pandas as pd

SCHEMA = {"label": "click", "numeric": ["price"], "categorical": ["user", "item"], "user": "user", "item": "item"}


def shop_log(rows: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Return clicks of 30 users on 20 items; odd users click more, and odd items are clicked more."""
    random = np.random.default_rng(seed)
    user, item = random.integers(0, 30, rows), random.integers(0, 20, rows)
    return pd.DataFrame(
        {
            "user": [f"u{one}" for one in user],
            "item": item,
            "price": random.random(rows),
            "click": (random.random(rows) < 0.05 + 0.45 * (user % 2) + 0.45 * (item % 2)).astype(int),
        }
    )
