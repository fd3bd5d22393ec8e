"""A small click log in which users like the items of their own group, in the layout of ingestion."""

from pathlib import Path

import numpy as np

from shunter.engine.data.dataset import SPLITS, Dataset, SplitStatistics
from shunter.engine.ranking.evaluation import RankingMetrics
from shunter.engine.ranking.interactions import read_graph, read_interactions
from shunter.engine.ranking.trainer import RankingData
from shunter.models.graph.ranker import Ranker
from shunter.models.spec import CategoricalFeature, Features

USERS, ITEMS, GROUPS = 30, 24, 3


def write_clicks(
    directory: Path, *, rows: int = 1_500, seed: int = 0, user: str | None = "user", positives: bool = True
) -> Dataset:
    """Users 2 to 30 and items 2 to 24 fall into three groups; a click is likely within a group.

    User 1 and item 1 have rows and no positive, id 0 is the unknown one. The hour says nothing of either; the genres
    are a property of the items and the town is one of the users.
    """
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    splits = {}
    for split, share in zip(SPLITS, (0.7, 0.15, 0.15), strict=True):
        count = int(rows * share)
        users, items = random.integers(0, USERS + 1, count), random.integers(0, ITEMS + 1, count)
        likes = random.random(count) < np.where(users % GROUPS == items % GROUPS, 0.9, 0.05)
        labels = (likes & (users > 1) & (items > 1) & positives).astype(np.float32)
        categorical = np.stack([random.integers(1, 24, count), users, items, users % 5 + (users > 0)], axis=1)
        genres = [[item % GROUPS + 1, 4][: 1 + item % 2] if item else [] for item in items]
        prefix = directory / split
        np.save(f"{prefix}.label.npy", labels)
        np.save(f"{prefix}.categorical.npy", categorical.astype(np.int32))
        np.save(f"{prefix}.bag4.values.npy", np.array([one for row in genres for one in row], dtype=np.int32))
        np.save(f"{prefix}.bag4.offsets.npy", np.cumsum([0, *map(len, genres)]))
        splits[split] = SplitStatistics(rows=count, positives=int(labels.sum()))
    dataset = Dataset(
        name="clicks",
        directory=directory,
        fingerprint=f"clicks-{rows}-{seed}",
        features=Features(
            dense=(),
            categorical=(
                CategoricalFeature(name="hour", rows=24),
                CategoricalFeature(name="user", rows=USERS + 1),
                CategoricalFeature(name="item", rows=ITEMS + 1),
                CategoricalFeature(name="town", rows=6),
                CategoricalFeature(name="genres", rows=5, multi_valued=True),
            ),
        ),
        splits=splits,
        split_by="hash",
        fields=(),
        quarantined_rows=0,
        user=user,
        item="item",
    )
    dataset.save()
    return dataset


def ranking_data(directory: Path) -> RankingData:
    """The same, as the trainer takes it."""
    dataset = write_clicks(directory)
    return RankingData(
        graph=read_graph(dataset), validation=read_interactions(dataset, "validation"), fingerprint=dataset.fingerprint
    )


class Scripted(RankingData):
    """Data whose rankings are judged by a script: NDCG@20 is best after the first epoch, recall@20 after the third."""

    def evaluate(self, ranker: Ranker) -> RankingMetrics:
        """The next figures of the script, which goes on with its last."""
        epoch = min(self.__dict__.setdefault("judged", 0), 3)
        self.__dict__["judged"] = epoch + 1
        return RankingMetrics(
            ndcg20=(0.4, 0.3, 0.2, 0.1)[epoch], recall20=(0.1, 0.2, 0.4, 0.3)[epoch], users=len(self.validation)
        )
