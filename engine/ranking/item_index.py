"""An index over the vectors of items: the best of a large catalogue without comparing all, with its recall measured."""

import importlib
import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shunter.engine.ranking.best import AllScores, Best, Search
from shunter.errors import RequestError
from shunter.models.graph.ranker import Ranker, VectorRanker

MEASURED_AT = (20, 100)  # lengths of a list for which the recall is measured, where none is asked for
AIMED_RECALL = 0.99  # on half of the users that are tried, the fewest lists are searched with which it is reached
LEAST_RECALL = 0.95  # on the other half; below it there is no index
TRIED_USERS = 512
# Lists of an index, as a multiple of the root of the items; at most one in so many of them is searched, for beyond that
# all scores take no longer.
LISTS, SEARCHED_SHARE = 4, 8
# By which the lists are found: so many items of each, so many times.
ITEMS_OF_A_LIST, ROUNDS = 64, 10
SPARE_ITEMS = 4  # times as many as are looked for are in the lists that are searched, on average
# Below it the longest list that is measured, rounded up to a power of two, takes more lists than may be searched.
FEWEST_ITEMS = SPARE_ITEMS * SEARCHED_SHARE * 128
LARGE_CATALOGUE = 50_000  # items from which an index answers a user sooner than all scores do
PAYING_USERS = 10_000  # users for whom all scores take as long as building an index and measuring it


@dataclass(frozen=True)
class MeasuredIndex:
    """What building an index came to.

    Attributes:
        items: Items in it.
        lists: Lists that they are divided among.
        searched: Lists that are searched for a user.
        recall: By the length of the list: the share of the exact best items that are found.
        users: Users on whom it was measured, none of whom chose the number of lists that are searched.
        build_seconds: Time to build it, without measuring.
    """

    items: int
    lists: int
    searched: int
    recall: dict[int, float]
    users: int
    build_seconds: float

    def recall_in_words(self) -> str:
        """Its recall by the length of the list."""
        return " and ".join(f"{value:.3f} at {most}" for most, value in self.recall.items())

    def in_words(self) -> str:
        """The sentence that a server and the command say."""
        return (
            f"The best of {self.items:,} items come from an index (approximate), built in {self.build_seconds:.1f} s: "
            f"{self.searched} of {self.lists:,} lists are searched, which finds a share of the exact best of "
            f"{self.recall_in_words()} (measured on {self.users} users)."
        )


class ItemIndex(Search):
    """Approximate: compares the items of the lists whose centres are nearest to the user (FAISS, inverted lists).

    Users without an edge, and longer lists than those whose recall was measured, are answered by all scores; so is who
    would otherwise get fewer items than there are.

    Args:
        ranker: What scores, on the CPU.
        items: As of `Search`.
        exact: The same by all scores.
        lists: Lists that the items are divided among.

    Attributes:
        measured: What building it came to; None before it was measured.
        exact: The same by all scores.
        searched: Lists that are searched for a user who has few of the items.
    """

    def __init__(self, ranker: VectorRanker, items: np.ndarray, exact: AllScores, lists: int) -> None:
        super().__init__(ranker, items)
        self.exact, self.searched = exact, 1
        self.measured: MeasuredIndex | None = None
        self._users = ranker.user_vectors
        self._lists = lists
        self._faiss: Any = importlib.import_module("faiss")  # it has no types
        self._faiss.omp_set_num_threads(torch.get_num_threads())
        self._index = self._lists_of(ranker.item_vectors[self.items].numpy())

    def _lists_of(self, vectors: np.ndarray) -> Any:
        """FAISS's inverted lists of these vectors, whole.

        An item is in the list whose centre is nearest by distance, and those lists are searched whose centres have the
        highest product with the user: by products alone, or on the sphere, the items of high norm, which are most of
        the best, would lie scattered.
        """
        faiss, width = self._faiss, vectors.shape[1]
        found = faiss.Kmeans(
            width,
            self._lists,
            niter=ROUNDS,
            seed=0,
            max_points_per_centroid=ITEMS_OF_A_LIST,
            min_points_per_centroid=1,  # of few items it would warn, and the recall is measured anyway
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
        """As `Search.best` says."""
        is_measured = self.measured is None or most <= max(self.measured.recall)
        found = self._nearest(users, most, without) if is_measured else Best.nothing(len(users), most)
        there = np.array([len(self.items) - len(one) for one in without])
        rest = np.flatnonzero((found.places >= 0).sum(1) < np.minimum(most, there))
        if len(rest):
            found.put(rest, self.exact.best(users[rest], most, [without[row] for row in rest.tolist()]))
        return found

    def _nearest(self, users: np.ndarray, most: int, without: Sequence[np.ndarray]) -> Best:
        """What the index finds by itself: too little for whom much is left out, and nothing for users without an edge.

        What a user shall not get is mostly near, so more is looked for by so much, of users of like need together.
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
        """Choose how many lists are searched with half of some users, and measure the recall with the other half.

        Args:
            users: Ids of users with an edge, at least two.
            without: As of `Search.best`.
            lengths: Lengths of a list for which the recall is measured.
            seconds: Time that building took.
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
    """Build an index, and measure its recall.

    Args:
        ranker: What scores.
        items: As of `Search`.
        tried: Ids of about `TRIED_USERS` users with an edge, in random order, and what each shall not get.
        lengths: Lengths of a list for which the recall is measured.
        title: What messages call the model.
        least_recall: Below it there is none; None is `LEAST_RECALL`.

    Raises:
        RequestError: The ranker has no vectors, there are too few items or users, or the recall is too low.
    """
    if (reason := why_exact(ranker)) is not None:
        raise RequestError(f"--index approximate cannot be had of {title}: {reason}; use --index exact.")
    assert isinstance(ranker, VectorRanker)
    users, without = tried
    lists = round(LISTS * len(items) ** 0.5)
    if lists < 2 * SEARCHED_SHARE or len(users) < 2:
        raise RequestError(
            f"--index approximate needs more than the {len(items):,} items and {len(users):,} known users of the log: "
            "use --index exact, which is faster there."
        )
    if importlib.util.find_spec("faiss") is None:
        raise RequestError("--index approximate needs the package faiss-cpu, which is not here: use --index exact.")
    begin = time.perf_counter()
    index = ItemIndex(ranker, items, AllScores(ranker, items), lists)
    index.measure(users, without, lengths, time.perf_counter() - begin)
    assert index.measured is not None
    recall = min(index.measured.recall.values())
    least = LEAST_RECALL if least_recall is None else least_recall
    if recall < least:
        raise RequestError(
            f"An index finds {recall:.3f} of the best items of {title}, less than {least:g}: use --index exact."
        )
    return index


def pays(items: int, users: int | None) -> bool:
    """Whether an index answers sooner than all scores, its building counted.

    Args:
        items: Items of the catalogue.
        users: Users who will be asked for; None where there is no end of them.
    """
    return items >= LARGE_CATALOGUE and (users is None or users >= PAYING_USERS)


def why_exact(ranker: Ranker) -> str | None:
    """Why there can be no index; None where there can."""
    if not isinstance(ranker, VectorRanker):
        kinds = {"fused": "it adds up several models", "dense": "it scores by weights between items"}
        return f"{kinds.get(ranker.kind, kinds['dense'])}, and an index is of vectors"
    if ranker.item_vectors.shape[1] == 1:
        return "it ranks all users' items in one order, and an index is of vectors"
    return None


def _without(found: Best, without: Sequence[np.ndarray], most: int) -> Best:
    """The best `most` of what was found, but for the places that each user shall not get."""
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
    """The share of the best `most` items that were found, mean over the users; what ties with the last is as good.

    Args:
        found: What was found, the best first.
        exact: Scores of the exact best, `[users, at least most]`.
        most: How many count.
    """
    wanted = (exact[:, :most] > -np.inf).sum(1)
    last = exact[np.arange(len(exact)), np.maximum(wanted - 1, 0)]
    floor = last - 1e-5 * np.abs(last)  # products are rounded otherwise in another order
    hits = np.minimum((found.scores[:, :most] >= floor[:, None]).sum(1), wanted)
    return float((hits[wanted > 0] / wanted[wanted > 0]).mean()) if (wanted > 0).any() else 1.0
