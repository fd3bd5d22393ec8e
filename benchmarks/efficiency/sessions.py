"""Real sessions in the engine's layout: whether a user of MovieLens-1M likes a film, by the films liked before it.

This copy of the ratings lacks their times, so that the order is that of the file.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.quality.data import SHARED_DATA
from shunter.engine.data.dataset import Dataset, FieldStatistics, SplitStatistics
from shunter.models.spec import CategoricalFeature, Features

SOURCE = SHARED_DATA / "ml-1m_ratings.npz"
LENGTH, LEAST_LIKED = 12, 3
PARTS = {"train": (-34, -4), "validation": (-4, -2), "test": (-2, 0)}  # of the ratings of a user
Sample = tuple[np.ndarray, int, bool]  # films liked before, the candidate, and whether it is liked


def read_users() -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each user the films, from 1, and whether each is liked; ratings of 3 are left out."""
    with np.load(SOURCE) as stored:
        users, items, ratings = (stored[name].astype(np.int32) for name in ("user", "item", "rating"))
    said = ratings != 3
    users, items, liked = users[said], items[said], ratings[said] > 3
    ends = np.flatnonzero(np.diff(users)) + 1
    return list(zip(np.split(items, ends), np.split(liked, ends), strict=True))


def write_sessions(folder: Path, users: int) -> Dataset:
    """The last two ratings of a user are the test part, the two before validation, up to thirty before the training.

    Args:
        folder: Folder of the data set.
        users: Users, the first ones of a fixed order.
    """
    known = read_users()
    chosen = [known[number] for number in np.random.default_rng(0).permutation(len(known))[:users]]
    items = 1 + max(int(films.max()) for films, _ in known)
    for part, (first, end) in PARTS.items():
        _save(folder, part, [one for films, liked in chosen for one in _samples(films, liked, first, end)])
    return _described(folder, items)


def _samples(films: np.ndarray, liked: np.ndarray, first: int, end: int) -> list[Sample]:
    found: list[Sample] = []
    for place in range(max(0, len(films) + first), max(0, len(films) + end)):
        history = films[:place][liked[:place]][-LENGTH:]
        if len(history) >= LEAST_LIKED:
            found.append((history, int(films[place]), bool(liked[place])))
    return found


def _save(folder: Path, part: str, samples: Sequence[Sample]) -> None:
    lengths = [len(history) for history, _, _ in samples]
    np.save(folder / f"{part}.label.npy", np.array([label for _, _, label in samples], dtype=np.float32))
    np.save(folder / f"{part}.categorical.npy", np.array([[film] for _, film, _ in samples], dtype=np.int32))
    np.save(folder / f"{part}.bag1.values.npy", np.concatenate([history for history, _, _ in samples]).astype(np.int32))
    np.save(folder / f"{part}.bag1.offsets.npy", np.cumsum([0, *lengths], dtype=np.int64))


def _described(folder: Path, items: int) -> Dataset:
    labels = {part: np.load(folder / f"{part}.label.npy") for part in PARTS}
    dataset = Dataset(
        name="ml-1m-sessions",
        directory=folder,
        fingerprint=f"ml-1m-sessions-{LENGTH}-{len(labels['train'])}",
        features=Features(
            dense=(),
            categorical=(
                CategoricalFeature(name="film", rows=items),
                CategoricalFeature(name="liked", rows=items, multi_valued=True, length=LENGTH, table="film"),
            ),
        ),
        splits={part: SplitStatistics(rows=len(own), positives=int(own.sum())) for part, own in labels.items()},  # pyright: ignore[reportArgumentType]
        split_by="given parts",
        fields=tuple(
            FieldStatistics(name=name, kind=kind, cardinality=items, missing_share=0.0)
            for name, kind in (("film", "categorical"), ("liked", "sequence"))
        ),
        quarantined_rows=0,
    )
    dataset.save()
    return dataset
