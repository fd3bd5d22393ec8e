"""The click logs that the benchmark of quality trains on, in the engine's layout and the published splits.

Both are research data that lie beside the project and are not part of it.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from shunter.engine.data.dataset import SPLITS, Dataset, FieldStatistics, SplitStatistics
from shunter.models.spec import CategoricalFeature, Features

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FRAPPE_FIELDS = ("user", "item", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city")
FRAPPE_PARTS = {"train": "train", "validation": "valid"}  # names of the engine and of the file
ML1M_FIELDS = ("gender", "age", "occupation", "zip", "year")
SPLIT_SEED = 2018


def read_frappe() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Ids int32 [rows, fields] and labels of the training and validation part."""
    with np.load(SHARED_DATA / "frappe_x1_train_valid.npz") as stored:
        ids = {part: stored[f"{name}_x"].astype(np.int32) for part, name in FRAPPE_PARTS.items()}
        labels = {part: stored[f"{name}_y"] for part, name in FRAPPE_PARTS.items()}
    return ids, labels


def write_frappe(folder: Path, rows: int | None = None) -> Dataset:
    """BARS' split of Frappe, without the test part, which is not in the file; ids are counted from zero in each field.

    Args:
        folder: Folder of the data set.
        rows: Rows of the training part, its first ones; None is all.
    """
    ids, labels = read_frappe()
    ids["train"], labels["train"] = ids["train"][:rows], labels["train"][:rows]
    first = np.minimum.reduce([part.min(0) for part in ids.values()])
    last = np.maximum.reduce([part.max(0) for part in ids.values()])
    counts: dict[str, int] = dict(zip(FRAPPE_FIELDS, (last - first + 1).tolist(), strict=True))
    shifted = {part: values - first for part, values in ids.items()}
    return _write(
        folder, "frappe_x1", version=f"{rows}", labels=labels, ids=shifted, counts=counts, split_by="published"
    )


def read_ml1m() -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """MovieLens-1M as clicks, by the protocol of AutoInt (Song et al., CIKM 2019): 739,012 rows, and those by part.

    A rating above 3 is a positive, one below 3 a negative, and those of 3 are left out. The fields are those of the
    protocol but for the time, which this copy of the ratings lacks: gender, age, occupation and zip code of the user,
    year and genres of the film. There are no ids of users and films among them: the 3,529 values that AutoInt lists in
    all are fewer than the 6,040 users. Rows are split at random 8:1:1, with a fixed seed.
    """
    with np.load(SHARED_DATA / "ml-1m_ratings.npz") as stored:
        ratings = pd.DataFrame({name: stored[name].astype(np.int64) for name in ("user", "item", "rating")})
    films = pd.read_parquet(SHARED_DATA / "ml-1m_movies.parquet")
    films["year"] = films["title"].str.extract(r"\((\d{4})\)\s*$", expand=False)
    frame = ratings[ratings["rating"] != 3].merge(pd.read_parquet(SHARED_DATA / "ml-1m_users.parquet"), on="user")
    frame = frame.merge(films, on="item").sort_values(["user", "item"], ignore_index=True)
    shuffled = np.random.default_rng(SPLIT_SEED).permutation(len(frame))
    tenth = len(frame) // 10
    return frame, {"train": shuffled[2 * tenth :], "validation": shuffled[:tenth], "test": shuffled[tenth : 2 * tenth]}


def write_ml1m(folder: Path, rows: int | None = None) -> Dataset:
    """MovieLens-1M as clicks, see `read_ml1m`; a value that the training part does not hold has id 0.

    Args:
        folder: Folder of the data set.
        rows: Rows of the training part, its first ones; None is all.
    """
    frame, parts = read_ml1m()
    parts["train"] = parts["train"][:rows]
    labels = {part: (frame["rating"].to_numpy()[chosen] > 3) for part, chosen in parts.items()}
    columns, counts = [], {}
    for name in ML1M_FIELDS:
        codes, counts[name] = _ids(frame[name].astype(str).to_numpy(dtype=str), parts["train"])
        columns.append(codes)
    ids = {part: np.stack(columns, axis=1)[chosen] for part, chosen in parts.items()}
    genres = _genres(frame["genres"].to_numpy(dtype=str))
    _save_bags(folder, len(columns), genres, parts)
    counts["genres"] = 1 + max(max(one) for one in genres)
    return _write(
        folder,
        "ml-1m-ctr",
        version=f"{SPLIT_SEED}-{rows}",
        labels=labels,
        ids=ids,
        counts=counts,
        split_by="random",
        bags=("genres",),
    )


def _ids(values: np.ndarray, train: np.ndarray) -> tuple[np.ndarray, int]:
    """Ids of a column, and how many there are; 0 is what the training part does not hold."""
    known = np.unique(values[train])
    places = np.searchsorted(known, values).clip(max=len(known) - 1)
    return np.where(known[places] == values, places + 1, 0).astype(np.int32), len(known) + 1


def _genres(texts: np.ndarray) -> list[list[int]]:
    """The ids of each row's genres, from 1."""
    distinct = set(texts.tolist())
    names = sorted({name for text in distinct for name in text.split("|")})
    number = {name: position for position, name in enumerate(names, start=1)}
    of_text = {text: [number[name] for name in text.split("|")] for text in distinct}
    return [of_text[text] for text in texts.tolist()]


def _save_bags(folder: Path, position: int, bags: list[list[int]], parts: Mapping[str, np.ndarray]) -> None:
    for part, chosen in parts.items():
        own = [bags[row] for row in chosen.tolist()]
        offsets = np.cumsum([0, *map(len, own)], dtype=np.int64)
        np.save(folder / f"{part}.bag{position}.values.npy", np.concatenate(own).astype(np.int32))
        np.save(folder / f"{part}.bag{position}.offsets.npy", offsets)


def _write(
    folder: Path,
    name: str,
    *,
    version: str,
    labels: Mapping[str, np.ndarray],
    ids: Mapping[str, np.ndarray],
    counts: Mapping[str, int],
    split_by: str,
    bags: tuple[str, ...] = (),
) -> Dataset:
    """Write labels and single-valued ids, and describe the whole; `counts` are the ids of each field, bags last."""
    for part in labels:
        np.save(folder / f"{part}.categorical.npy", ids[part])
        np.save(folder / f"{part}.label.npy", labels[part].astype(np.float32))
    dataset = Dataset(
        name=name,
        directory=folder,
        fingerprint=f"{name}-{version}",
        features=Features(
            dense=(),
            categorical=tuple(
                CategoricalFeature(name=field, rows=count, multi_valued=field in bags)
                for field, count in counts.items()
            ),
        ),
        splits={
            part: SplitStatistics(rows=len(labels[part]), positives=int(labels[part].sum()))
            for part in SPLITS
            if part in labels
        },
        split_by=split_by,
        fields=tuple(
            FieldStatistics(
                name=field,
                kind="multi_valued" if field in bags else "categorical",
                cardinality=count,
                missing_share=0.0,
            )
            for field, count in counts.items()
        ),
        quarantined_rows=0,
    )
    dataset.save()
    return dataset
