"""Breakdown of ranking quality: by list length, by groups of items and users, with coverage and novelty.

For each user, C is the set of chosen items, and L the list of the first k ranked items that the user has not seen:

    recall@k    = |C in L| / |C|
    precision@k = |C in L| / k
    hit rate@k  = 1 where any of C is in L, else 0
    NDCG@k      as in `shunter.engine.ranking.evaluation` (Järvelin and Kekäläinen, "Cumulated gain-based evaluation of
                  IR techniques", TOIS 2002, by relevance 0 or 1)

Each metric is the mean over users. Two metrics describe the lists of the first 20 items of all users together:

    coverage@20 = known items in any list / known items (catalogue coverage of Ge, Delgado-Battenfeld and
                  Jannach, "Beyond accuracy: evaluating recommender systems by coverage and serendipity", RecSys 2010)
    novelty@20  = mean over users of the mean over their list of log2(users / users who chose the item), in bits: the
                  self-information of Zhou et al., "Solving the apparent diversity-accuracy dilemma of recommender
                  systems", PNAS 2010. An item that nobody chose counts as one that one user chose.

Items are grouped by popularity: sorted by descending number of interactions, on ties by id. The *head* contains the
first items that together have a fifth of all interactions. The *tail* contains the items after four fifths, and the
*middle* the rest. Only interactions that rankings exclude as seen are counted, so the groups are equal for all models.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shunter.engine.config import Repeats
from shunter.engine.ranking.evaluation import (
    CUTOFF,
    USERS_AT_ONCE,
    UserFigures,
    evaluated_pairs,
    first_items,
    hits_of,
    score_hits,
)
from shunter.engine.ranking.interactions import UNKNOWN, Interactions

if TYPE_CHECKING:
    from shunter.models.graph.ranker import Ranker

CUTOFFS = (1, 5, 10, 20, 50, 100)
GROUPS = ("head", "middle", "tail")
HEAD_SHARE, TAIL_SHARE = 0.2, 0.8  # of all interactions, cumulated from the most popular item on
QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True, eq=False)
class Breakdown:
    """Quality of a ranking for each user and each item.

    Attributes:
        figures: Recall and NDCG of each user's first 20 items.
        history: Number of items that each user has seen, int64 `[users]`.
        recall: Recall of each user by list length, float64 `[users, CUTOFFS]`.
        ndcg: NDCG of each user by list length, float64 `[users, CUTOFFS]`.
        precision: Precision of each user by list length, float64 `[users, CUTOFFS]`.
        hit_rate: 1 if the list contains any item that the user chose, otherwise 0, float64 `[users, CUTOFFS]`.
        novelty: Mean self-information of each user's first 20 items in bits, float64 `[users]`; nan if no item is left
            to rank.
        exposure: Number of lists of 20 that contain each item, int64 `[items]`.
        group_of_item: Popularity group of each item as index of `GROUPS`, int64 `[items]`; meaningless for the unknown
            item.
        group_chosen: Number of items of each group that the user chose, int64 `[users, GROUPS]`.
        group_hits: Number of chosen items of each group among the user's first 20, int64 `[users, GROUPS]`.
    """

    figures: UserFigures
    history: np.ndarray
    recall: np.ndarray
    ndcg: np.ndarray
    precision: np.ndarray
    hit_rate: np.ndarray
    novelty: np.ndarray
    exposure: np.ndarray
    group_of_item: np.ndarray
    group_chosen: np.ndarray
    group_hits: np.ndarray

    @property
    def coverage(self) -> float:
        """Share of the known items that are in any user's list."""
        return float((self.exposure[UNKNOWN + 1 :] > 0).mean())


def break_down(
    ranker: "Ranker", chosen: Interactions, seen: Interactions, *, name: str, repeats: Repeats = "drop"
) -> Breakdown:
    """Rank all items for every user with a chosen item, and return the breakdown of the lists.

    Args:
        ranker: Model that scores the items.
        chosen: Pairs of users and chosen items.
        seen: Items that each user has seen already.
        name: Name of the data part for error messages.
        repeats: Whether chosen pairs that are in `seen` count (`keep`) or not (`drop`).

    Raises:
        DataError: No user has a chosen item to find.
    """
    chosen, hidden, rows = evaluated_pairs(chosen, seen, repeats, name=name)
    items = ranker.item_count
    counts = np.bincount(seen.items, minlength=items)
    groups = groups_of_items(counts)
    information = np.log2(max(1, len(np.unique(seen.users))) / np.maximum(counts, 1))
    parts = list(_parts(ranker, chosen, hidden, information, groups))
    users = np.unique(chosen.users)
    recall, ndcg, precision, hit_rate, novelty, hits, wanted = (
        np.concatenate([part[position] for part in parts]) for position in range(7)
    )
    at = CUTOFFS.index(CUTOFF)
    return Breakdown(
        figures=UserFigures(users=users, recall20=recall[:, at], ndcg20=ndcg[:, at], rows=rows),
        history=np.searchsorted(seen.users, users, side="right") - np.searchsorted(seen.users, users),
        recall=recall,
        ndcg=ndcg,
        precision=precision,
        hit_rate=hit_rate,
        novelty=novelty,
        exposure=np.sum([part[7] for part in parts], axis=0),
        group_of_item=groups,
        group_chosen=wanted,
        group_hits=hits,
    )


def groups_of_items(counts: np.ndarray) -> np.ndarray:
    """Return the popularity group of each item, as an index of `GROUPS`, `[items]`.

    Args:
        counts: Number of interactions of each item, `[items]`; the count of the unknown item is ignored.
    """
    known = counts.copy()
    known[UNKNOWN] = 0
    order = np.lexsort((np.arange(len(known)), -known))
    before = np.cumsum(known[order]) - known[order]
    total = known.sum()
    groups = np.empty(len(known), np.int64)
    groups[order] = np.digitize(before, [HEAD_SHARE * total, TAIL_SHARE * total])
    return groups


def quarters_of_users(history: np.ndarray) -> np.ndarray:
    """Return the quarter of each user by length of history, from 0 (shortest) to 3 (longest), `[users]`.

    Users with histories of equal length are in the same quarter, so quarters differ in size and may be empty.
    """
    return np.searchsorted(np.quantile(history, QUARTERS, method="inverted_cdf"), history)


def _parts(
    ranker: "Ranker", chosen: Interactions, seen: Interactions, information: np.ndarray, groups: np.ndarray
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield for each batch of users the arrays of its metrics, which `break_down` joins by their positions."""
    users, starts = np.unique(chosen.users, return_index=True)
    ends = np.append(starts[1:], len(chosen))
    for start in range(0, len(users), USERS_AT_ONCE):
        part = slice(start, start + USERS_AT_ONCE)
        items = [chosen.items[first:last] for first, last in zip(starts[part], ends[part], strict=True)]
        top = first_items(ranker, users[part], seen, CUTOFFS[-1])
        is_hit, counts = hits_of(top, items), np.array([len(one) for one in items])
        judged = [score_hits(is_hit[:, :cutoff], counts) for cutoff in CUTOFFS]
        recall, ndcg = (np.stack(figures, axis=1) for figures in zip(*judged, strict=True))
        found = recall * counts[:, None]
        first = top[:, :CUTOFF]
        shown = first != UNKNOWN
        lengths = shown.sum(1)
        with np.errstate(invalid="ignore"):
            novelty = np.where(shown, information[first], 0.0).sum(1) / lengths
        rows, places = np.nonzero(is_hit[:, :CUTOFF])
        yield (
            recall,
            ndcg,
            found / np.array(CUTOFFS),
            (found > 0).astype(float),
            novelty,
            _by_group(rows, first[rows, places], groups, len(items)),
            _by_group(np.repeat(np.arange(len(items)), counts), np.concatenate(items), groups, len(items)),
            np.bincount(first[shown], minlength=len(groups)),
        )


def _by_group(rows: np.ndarray, items: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Count the items of each group in each row, int64 `[count, GROUPS]`, for given pairs of row and item."""
    cells = np.bincount(rows * len(GROUPS) + groups[items], minlength=count * len(GROUPS))
    return cells.reshape(count, len(GROUPS))
