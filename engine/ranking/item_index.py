"""Approximate nearest-neighbour index over item vectors, with measured recall, for large catalogues."""

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shunter.engine.ranking.best import AllScores, Best, Search
from shunter.errors import RequestError
from shunter.models.graph.ranker import Ranker, VectorRanker
from shunter.registry import check_package

MEASURED_AT = (20, 100)  # default numbers of items (k) for which recall@k is measured
AIMED_RECALL = 0.99  # target on half of the sampled users; determines how many lists are searched
LEAST_RECALL = 0.95  # smallest recall on the other half of the sampled users; otherwise the index is rejected
TRIED_USERS = 512
# The number of lists is LISTS times the square root of the number of items. At most one list in SEARCHED_SHARE is
# searched; beyond that, comparing all scores is as fast.
LISTS, SEARCHED_SHARE = 4, 8
# K-means clustering into lists: number of training items per list, and number of iterations.
ITEMS_OF_A_LIST, ROUNDS = 64, 10
SPARE_ITEMS = 4  # mean number of items in the searched lists, as a multiple of the requested items
# In a smaller catalogue, the largest measured k (rounded up to a power of two) needs more lists than the limit allows.
FEWEST_ITEMS = SPARE_ITEMS * SEARCHED_SHARE * 128
LARGE_CATALOGUE = 50_000  # smallest number of items for which an index is faster than comparing all scores
PAYING_USERS = 10_000  # smallest number of users whose saved time exceeds the time to build and measure the index


@dataclass(frozen=True)
class MeasuredIndex:
    """Size, measured recall and build time of an index.

    Attributes:
        items: Number of indexed items.
        lists: Number of inverted lists (clusters of items).
        searched: Number of lists searched for a user.
        recall: Recall@k by k: the share of the exact best k items that the index finds.
        users: Number of users on whom the recall was measured; other users were used to choose `searched`.
        build_seconds: Time to build the index, without the measurement.
    """

    items: int
    lists: int
    searched: int
    recall: dict[int, float]
    users: int
    build_seconds: float

    def recall_as_text(self) -> str:
        """Return the recall as text, such as `0.995 at 20 and 0.991 at 100`."""
        return " and ".join(f"{value:.3f} at {most}" for most, value in self.recall.items())

    def as_text(self) -> str:
        """Return the size, build time, searched share and measured recall of the index as one printed sentence."""
        return (
            f"The best of {self.items:,} items come from an index (approximate), built in {self.build_seconds:.1f} s: "
            f"{self.searched} of {self.lists:,} lists are searched, which finds a share of the exact best of "
            f"{self.recall_as_text()} (measured on {self.users} users)."
        )


class ItemIndex(Search):
    """Approximate search of the item lists whose centres are nearest to the user (FAISS, inverted lists).

    The exact search is used for users without interactions, and for users for whom the index finds too few items. It is
    also used for more items than the largest k with a measured recall.

    Args:
        ranker: Ranking model, on the CPU.
        items: Item ids, see `Search`.
        exact: Exact search of the same items.
        lists: Number of inverted lists.

    Attributes:
        measured: Size and recall of the index; None before `measure`.
        exact: Exact search of the same items.
        searched: Number of lists searched for a user with few excluded items.
    """

    def __init__(self, ranker: VectorRanker, items: np.ndarray, exact: AllScores, lists: int) -> None:
        super().__init__(ranker, items)
        self.exact, self.searched = exact, 1
        self.measured: MeasuredIndex | None = None
        self._users = ranker.user_vectors
        self._lists = lists
        self._faiss: Any = importlib.import_module("faiss")  # FAISS has no type annotations
        self._faiss.omp_set_num_threads(torch.get_num_threads())
        self._index = self._lists_of(ranker.item_vectors[self.items].numpy())

    def _lists_of(self, vectors: np.ndarray) -> Any:
        """Return a FAISS index of uncompressed vectors in inverted lists.

        Items are assigned to the centre at the smallest L2 distance; lists are searched by the inner product of the
        user and the centre. Assignment by inner product or cosine would scatter the items of high norm, which are
        most of the best items.
        """
        faiss, width = self._faiss, vectors.shape[1]
        found = faiss.Kmeans(
            width,
            self._lists,
            niter=ROUNDS,
            seed=0,
            max_points_per_centroid=ITEMS_OF_A_LIST,
            min_points_per_centroid=1,  # avoids a warning for few items; the recall is measured anyway
        )
        found.train(vectors)
        nearest, self._centres = faiss.IndexFlatL2(width), faiss.IndexFlatIP(width)
        nearest.add(found.centroids)
        self._centres.add(found.centroids)
        index = faiss.IndexIVFFlat(nearest, width, self._lists, faiss.METRIC_INNER_PRODUCT)
        index.add(vectors)
        index.quantizer = self._centres
        return index

    def best(self, users: np.ndarray, most: int, without: Sequence[np.ndarray]) -> Best:
        """Return the items with the highest scores for each user."""
        is_measured = self.measured is None or most <= max(self.measured.recall)
        found = self._nearest(users, most, without) if is_measured else Best.nothing(len(users), most)
        there = np.array([len(self.items) - len(one) for one in without])
        rest = np.flatnonzero((found.places >= 0).sum(1) < np.minimum(most, there))
        if len(rest):
            found.put(rest, self.exact.best(users[rest], most, [without[row] for row in rest.tolist()]))
        return found

    def _nearest(self, users: np.ndarray, most: int, without: Sequence[np.ndarray]) -> Best:
        """Return the items found by the index alone: possibly too few, and none for users without interactions.

        A user's excluded items are mostly among the nearest items. The index is therefore searched for `most` items
        plus the number of excluded items, in batches of users with similar numbers.
        """
        found = Best.nothing(len(users), most)
        wanted = np.array([most + len(one) for one in without], np.int64)
        sizes = np.minimum(2 ** np.ceil(np.log2(wanted)).astype(np.int64), len(self.items))
        is_known = self.is_known(users)
        for size in np.unique(sizes[is_known]).tolist():
            searched = max(self.searched, -(-SPARE_ITEMS * size * self._lists // len(self.items)))
            if searched * SEARCHED_SHARE > self._lists:
                continue
            rows = np.flatnonzero(is_known & (sizes == size))
            vectors = self._users[torch.tensor(users[rows])].numpy()
            scores, places = self._index.search(vectors, size, params=self._faiss.SearchParametersIVF(nprobe=searched))
            of_rows = [without[row] for row in rows.tolist()]
            found.put(rows, _without(Best(places, scores.astype(np.float64)), of_rows, most))
        return found

    def measure(self, users: np.ndarray, without: Sequence[np.ndarray], lengths: Sequence[int], seconds: float) -> None:
        """Choose the number of searched lists on half of the users, and measure the recall on the other half.

        Args:
            users: Ids of users with interactions, at least two.
            without: Excluded items of each user, see `Search.best`.
            lengths: Numbers of items (k) for which the recall is measured.
            seconds: Build time of the index.
        """
        longest = max(lengths)
        exact = self.exact.best(users, longest, without)
        half = len(users) // 2
        while True:
            found = self._nearest(users[:half], longest, without[:half])
            if recall_of(found, exact.scores[:half], longest) >= AIMED_RECALL:
                break
            if 2 * self.searched * SEARCHED_SHARE > self._lists:
                break
            self.searched *= 2
        found = self._nearest(users[half:], longest, without[half:])
        recall = {most: recall_of(found, exact.scores[half:], most) for most in sorted(set(lengths))}
        self.measured = MeasuredIndex(len(self.items), self._lists, self.searched, recall, len(users) - half, seconds)


def build_index(
    ranker: Ranker,
    items: np.ndarray,
    tried: tuple[np.ndarray, Sequence[np.ndarray]],
    lengths: Sequence[int] = MEASURED_AT,
    *,
    title: str = "the model",
    least_recall: float | None = None,
) -> ItemIndex:
    """Build an approximate index of items, and measure its recall.

    Args:
        ranker: Ranking model.
        items: Item ids, see `Search`.
        tried: Ids of about `TRIED_USERS` users with interactions, in random order, and the excluded items of each.
        lengths: Numbers of items (k) for which the recall is measured.
        title: Name of the model in messages.
        least_recall: Smallest accepted recall; None for `LEAST_RECALL`.

    Raises:
        MissingPackageError: FAISS is not installed.
        RequestError: The ranker has no vectors, there are too few items or users, or the recall is too low.
    """
    if (reason := why_exact(ranker)) is not None:
        raise RequestError(f"--index approximate is not possible for {title}: {reason}; use --index exact.")
    assert isinstance(ranker, VectorRanker)
    users, without = tried
    lists = round(LISTS * len(items) ** 0.5)
    if lists < 2 * SEARCHED_SHARE or len(users) < 2:
        raise RequestError(
            f"--index approximate needs more items and users than the {len(items):,} items and "
            f"{len(users):,} known users of the log: use --index exact, which is faster for so few."
        )
    check_package("faiss", "faiss-cpu", "serve")
    begin = time.perf_counter()
    index = ItemIndex(ranker, items, AllScores(ranker, items), lists)
    index.measure(users, without, lengths, time.perf_counter() - begin)
    assert index.measured is not None
    recall = min(index.measured.recall.values())
    least = LEAST_RECALL if least_recall is None else least_recall
    if recall < least:
        raise RequestError(
            f"The approximate index finds a share of {recall:.3f} of the best items of {title}, less than "
            f"the required {least:g}: use --index exact."
        )
    return index


def pays(items: int, users: int | None) -> bool:
    """Return True if an approximate index, including its build time, is faster than comparing all scores.

    Args:
        items: Number of items of the catalogue.
        users: Number of users to recommend for; None if unlimited.
    """
    return items >= LARGE_CATALOGUE and (users is None or users >= PAYING_USERS)


def why_exact(ranker: Ranker) -> str | None:
    """Return the reason why no index can be built for a ranker; None if an index can be built."""
    if not isinstance(ranker, VectorRanker):
        kinds = {"fused": "it adds up several models", "dense": "it scores by weights between items"}
        return f"{kinds.get(ranker.kind, kinds['dense'])}, and an index is of vectors"
    if ranker.item_vectors.shape[1] == 1:
        return "it ranks all users' items in one order, and an index is of vectors"
    return None


def _without(found: Best, without: Sequence[np.ndarray], most: int) -> Best:
    """Return the best `most` found items of each user, without the user's excluded positions."""
    users, width = found.places.shape
    rows, places = np.repeat(np.arange(users), [len(one) for one in without]), np.concatenate(without)
    span = 1 + int(max(found.places.max(initial=0), places.max(initial=0)))
    unwanted = rows * span + places
    keys = (np.arange(users)[:, None] * span + found.places).ravel()
    is_kept = (found.places >= 0) & ~np.isin(keys, unwanted).reshape(users, width)
    rank = is_kept.cumsum(1) - 1
    row, column = np.nonzero(is_kept & (rank < most))
    kept = Best.nothing(users, most)
    kept.places[row, rank[row, column]] = found.places[row, column]
    kept.scores[row, rank[row, column]] = found.scores[row, column]
    return kept


def recall_of(found: Best, exact: np.ndarray, most: int) -> float:
    """Return recall@k, the mean over users; items that tie with the last exact item count as found.

    Args:
        found: Items that the index found, with their scores, the best first.
        exact: Scores of the best items by exact search, descending, `[users, at least most]`.
        most: Number of items, k.
    """
    wanted = (exact[:, :most] > -np.inf).sum(1)
    last = exact[np.arange(len(exact)), np.maximum(wanted - 1, 0)]
    floor = last - 1e-5 * np.abs(last)  # tolerance: rounding depends on the order of summation
    hits = np.minimum((found.scores[:, :most] >= floor[:, None]).sum(1), wanted)
    return float((hits[wanted > 0] / wanted[wanted > 0]).mean()) if (wanted > 0).any() else 1.0
