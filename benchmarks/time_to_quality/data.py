"""The logs as CSV, one file for each part: the same files for Shunter and for every rival.

Frappe_x1 is split as in `benchmarks.quality`. Movielens1M_m1 has no validation part: a tenth of the training pairs,
drawn at random, is the one by which everybody chooses.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.graph import read_part
from benchmarks.quality.files import LOGS as CLICK_LOGS
from benchmarks.quality.files import QUICK_ROWS, Frames

PARTS = ("train", "validation", "test")
VALIDATION_SEED, VALIDATION_SHARE = 0, 0.1
QUICK_USERS = 300


@dataclass(frozen=True)
class Log:
    """A log in parts.

    Attributes:
        title: What it is.
        quality: The figure that is reached: its name in Shunter's runs.
        read: Reads its parts, all rows or few.
        schema: Which column is what, as Shunter is told.
    """

    title: str
    quality: str
    read: Callable[[bool], Frames]
    schema: Mapping[str, Any]


def write_files(log: Log, folder: Path, *, quick: bool) -> dict[str, str]:
    """Write the parts and the schema; paths by part, and that of the `schema`."""
    paths = {part: str(folder / f"{part}.csv") for part in PARTS}
    for part, frame in log.read(quick).items():
        frame.to_csv(paths[part], index=False)
    schema = folder / "schema.json"
    schema.write_text(json.dumps(dict(log.schema)))
    return {**paths, "schema": str(schema)}


def _frappe(quick: bool) -> Frames:
    frames = CLICK_LOGS["frappe"].read()
    if not quick:
        return frames
    return {part: frame.head(QUICK_ROWS if part == "train" else QUICK_ROWS // 4) for part, frame in frames.items()}


def _ml1m(quick: bool) -> Frames:
    """Pairs that were chosen, and rows that were not, which nobody learns from: a log needs both labels."""
    whole, test = read_part("train"), read_part("test")
    held_out = np.random.default_rng(VALIDATION_SEED).random(len(whole)) < VALIDATION_SHARE
    pairs = {
        "train": (whole.users[~held_out], whole.items[~held_out]),
        "validation": (whole.users[held_out], whole.items[held_out]),
        "test": (test.users, test.items),
    }
    not_chosen = pd.DataFrame({"chosen": 0, "user": range(1, QUICK_USERS + 1), "item": 1})
    frames = {part: pd.DataFrame({"chosen": 1, "user": users, "item": items}) for part, (users, items) in pairs.items()}
    return {
        part: pd.concat([frame.query(f"user <= {QUICK_USERS}") if quick else frame, not_chosen])
        for part, frame in frames.items()
    }


LOGS = {
    "frappe": Log("Frappe_x1, AUC", "auc", _frappe, CLICK_LOGS["frappe"].schema),
    "ml1m": Log(
        "Movielens1M_m1, NDCG@20",
        "ndcg20",
        _ml1m,
        {
            "label": "chosen",
            "categorical": ["user", "item"],
            "user": "user",
            "item": "item",
            "vocabulary": {"min_count": 1},
        },
    ),
}
