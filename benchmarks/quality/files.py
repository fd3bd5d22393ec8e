"""The click logs of the benchmark as files, one for each part, as a user would have them."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import yaml

from benchmarks.quality.data import FRAPPE_FIELDS, ML1M_FIELDS, SHARED_DATA, read_frappe, read_ml1m
from shunter.ingestion.sources.criteo import CATEGORICAL, NUMERIC

GAMES, GAMES_LENGTH = SHARED_DATA / "amazon_video_games_sasrec.txt.gz", 20
QUICK_ROWS = 20_000  # of the training part; the others get a quarter of it
CRITEO_PARTS = {"train": slice(0, 12_000), "validation": slice(12_000, 15_000), "test": slice(15_000, 20_000)}
Frames = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Log:
    """A click log in published parts.

    Attributes:
        title: What it is.
        read: Reads its parts, the columns under the names of the schema.
        schema: Which column is what.
    """

    title: str
    read: Callable[[], Frames]
    schema: Mapping[str, Any]


def write_files(log: Log, folder: Path, *, quick: bool = False) -> dict[str, str]:
    """Write the parts and the schema of a log.

    Returns:
        Paths by the names of the options that take them.
    """
    files = {"data": "train", "validation": "validation", "test": "test"}
    for part, frame in log.read().items():
        rows = (QUICK_ROWS if part == "train" else QUICK_ROWS // 4) if quick else None
        frame.iloc[:rows].to_parquet(folder / f"{part}.parquet", index=False)
    (folder / "schema.yaml").write_text(yaml.safe_dump(dict(log.schema)))
    paths = {option: str(folder / f"{part}.parquet") for option, part in files.items()}
    return {**paths, "schema_file": str(folder / "schema.yaml")}


def _frappe() -> Frames:
    """BARS' split; its test part is not in the file, so every second row of its validation part takes its place."""
    ids, labels = read_frappe()
    frames = {part: pd.DataFrame(ids[part], columns=list(FRAPPE_FIELDS)).assign(label=labels[part]) for part in ids}
    published = frames["validation"]
    return {"train": frames["train"], "validation": published.iloc[::2], "test": published.iloc[1::2]}


def _ml1m() -> Frames:
    frame, parts = read_ml1m()
    columns = frame[[*ML1M_FIELDS, "genres", "rating"]]
    return {part: columns.iloc[rows] for part, rows in parts.items()}


def _criteo() -> Frames:
    frame = pd.read_parquet(SHARED_DATA / "criteo_kaggle_rows90k_110k_indexed.parquet")
    frame = frame.rename(columns={"Label": "label"}).iloc[np.random.default_rng(0).permutation(len(frame))]
    return {part: frame.iloc[rows] for part, rows in CRITEO_PARTS.items()}


def _games() -> Frames:
    """Each user's next item or one drawn at random, by what they reviewed before, as Zhou et al. have it (KDD 2018).

    A user's last review is tested on, the one before it validates, those before that are learned, each beside one item
    that the user never reviewed.
    """
    with gzip.open(GAMES, "rt") as lines:
        log = pd.DataFrame(np.array([line.split() for line in lines], np.int64), columns=["user", "item"])
    random, items = np.random.default_rng(0), int(log.item.max())
    rows: dict[str, list[tuple[int, int, int, str]]] = {"train": [], "validation": [], "test": []}
    for user, own in log.groupby("user", sort=False).item:
        chosen, known = own.tolist(), set(own)
        for place in range(1, len(chosen)):
            part = ("test", "validation", "train")[min(len(chosen) - 1 - place, 2)]
            drawn = next(one for one in iter(lambda: int(random.integers(1, items + 1)), 0) if one not in known)
            before = " ".join(map(str, chosen[max(0, place - GAMES_LENGTH) : place]))
            rows[part] += [(cast(int, user), chosen[place], 1, before), (cast(int, user), drawn, 0, before)]
    return {part: pd.DataFrame(of_part, columns=["user", "item", "label", "seen"]) for part, of_part in rows.items()}


_AS_GIVEN = {"min_count": 1}  # published ids: every value of the training part has its own
LOGS = {
    "frappe": Log(
        "Frappe_x1",
        _frappe,
        {
            "label": "label",
            "categorical": list(FRAPPE_FIELDS),
            "user": "user",
            "item": "item",
            "vocabulary": _AS_GIVEN,
        },
    ),
    "ml1m": Log(
        "MovieLens-1M as clicks",
        _ml1m,
        {
            "label": {"column": "rating", "positive_at_least": 4},
            "categorical": list(ML1M_FIELDS),
            "multi_valued": [{"column": "genres", "separator": "|"}],
            "vocabulary": _AS_GIVEN,
        },
    ),
    "gamesusers": Log(
        "Amazon's games with their users, the next item or another",
        _games,
        {
            "label": "label",
            "categorical": ["user", "item"],
            "sequences": [{"column": "seen", "items": "item", "separator": " ", "length": GAMES_LENGTH}],
            "user": "user",
            "item": "item",
            "vocabulary": _AS_GIVEN,
        },
    ),
    "criteo": Log(
        "Criteo, 20,000 rows", _criteo, {"label": "label", "numeric": list(NUMERIC), "categorical": list(CATEGORICAL)}
    ),
}
