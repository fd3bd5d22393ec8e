"""Evaluation by full ranking: every item that a user has not seen is ranked, and the first twenty are evaluated.

The metrics of NGCF and LightGCN (Wang et al., "Neural Graph Collaborative Filtering", SIGIR 2019, section 4.2.1):

    Recall@20 = chosen items among the first 20 / chosen items
    NDCG@20   = sum over chosen items among the first 20 of 1 / log2(rank + 1)
                / the same sum if the chosen items came first

The metrics are computed for each user and averaged. Users without a chosen item in the evaluated part are excluded.
Items of equal score are ranked by their id, so that a constant score cannot profit from the order of the items.

A (user, item) pair that an earlier part contains too is a repeat. The protocol of the paper excludes repeats: seen
items are neither ranked nor counted as chosen. In data where users choose the same item again, all items are ranked.
"""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from shunter.engine.config import Repeats, SelectBy
from shunter.engine.ranking.interactions import UNKNOWN, Interactions, is_among
from shunter.errors import DataError
from shunter.record import OPTIONAL, Record

if TYPE_CHECKING:
    from shunter.models.graph.history_rankers import SparseHistoryRanker

CUTOFF = 20
USERS_AT_ONCE = 16_384  # users that are evaluated together
# Largest number of scores in one batch, so that their memory is reused. malloc returns blocks of more than 32 MiB to
# the system and maps them again at each allocation, which took a third of an evaluation on 22,438 items.
SCORES_AT_ONCE = 2**22
FIRST_WIDTH = 1_024  # items among which equal scores are searched first
NOTHING = Interactions(users=np.empty(0, np.int64), items=np.empty(0, np.int64))


@dataclass(frozen=True, kw_only=True)
class EvaluatedRows(Record):
    """Rows of a part by their use in the evaluation of a ranking.

    Attributes:
        left_out: Number of positives of users or items that are absent from training and cannot be ranked.
        pairs: Number of distinct (user, item) pairs to find.
        positives: Number of positive rows in the evaluated part.
        repeats: Number of positive rows whose pair is in an earlier part too.
    """

    left_out: int = 0
    pairs: int = field(default=0, metadata=OPTIONAL)
    positives: int = field(default=0, metadata=OPTIONAL)
    repeats: int = field(default=0, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class RankingMetrics(EvaluatedRows):
    """Quality of a ranking.

    Attributes:
        recall20: Mean over users of the share of their chosen items among the first 20.
        ndcg20: Mean over users of the normalised discounted cumulative gain of the first 20.
        users: Number of users with a chosen item.
    """

    recall20: float
    ndcg20: float
    users: int

    def figure_by(self, select_by: SelectBy) -> float:
        """Return the metric `select_by`, by which rankings are compared; higher is better."""
        return self.recall20 if select_by == "recall@20" else self.ndcg20


@dataclass(frozen=True, kw_only=True, eq=False)
class UserFigures:
    """Quality of the ranking for each user with a chosen item.

    Attributes:
        users: Ids of the users, int64 `[users]`.
        recall20: Recall@20 of each user, float64 `[users]`.
        ndcg20: NDCG@20 of each user, float64 `[users]`.
        rows: Counts of evaluated and excluded rows.
    """

    users: np.ndarray
    recall20: np.ndarray
    ndcg20: np.ndarray
    rows: EvaluatedRows

    def mean(self) -> RankingMetrics:
        """Return recall and NDCG as means over the users."""
        return RankingMetrics(
            recall20=float(self.recall20.mean()),
            ndcg20=float(self.ndcg20.mean()),
            users=len(self.users),
            **asdict(self.rows),
        )


class ScoresItems(Protocol):
    """Protocol of objects that score items for users, such as a `Ranker`."""

    @property
    def device(self) -> torch.device:
        """Device of the input ids and output scores."""
        ...

    @property
    def item_count(self) -> int:
        """Number of item ids, which is the number of columns of the scores."""
        ...

    def all_scores(self, users: Tensor) -> Tensor:
        """Return scores of all items for users, `[users]` to `[users, items]`; minus infinity excludes an item."""
        ...


def evaluate_ranking(
    ranker: ScoresItems, chosen: Interactions, seen: Interactions, *, name: str, repeats: Repeats = "drop"
) -> RankingMetrics:
    """Rank all items for every user with a chosen item, and return the mean quality; see `evaluate_users`."""
    return evaluate_users(ranker, chosen, seen, name=name, repeats=repeats).mean()


def evaluate_users(
    ranker: ScoresItems, chosen: Interactions, seen: Interactions, *, name: str, repeats: Repeats = "drop"
) -> UserFigures:
    """Rank all items for every user with a chosen item, and return the quality for each user.

    Args:
        ranker: Model that scores the items.
        chosen: Pairs of users and chosen items.
        seen: Items that each user has seen already.
        name: Name of the data part for error messages.
        repeats: Whether chosen pairs that are in `seen` count (`keep`) or not (`drop`).

    Raises:
        DataError: No user has a chosen item to find.
    """
    chosen, seen, rows = evaluated_pairs(chosen, seen, repeats, name=name)
    users, starts = np.unique(chosen.users, return_index=True)
    ends = np.append(starts[1:], len(chosen))
    recall, gain = np.empty(len(users)), np.empty(len(users))
    for start in range(0, len(users), USERS_AT_ONCE):
        part = slice(start, start + USERS_AT_ONCE)
        top = first_items(ranker, users[part], seen, CUTOFF)
        items = [chosen.items[first:last] for first, last in zip(starts[part], ends[part], strict=True)]
        recall[part], gain[part] = score_lists(top, items)
    return UserFigures(users=users, recall20=recall, ndcg20=gain, rows=rows)


def evaluated_pairs(
    chosen: Interactions, seen: Interactions, repeats: Repeats, *, name: str
) -> tuple[Interactions, Interactions, EvaluatedRows]:
    """Return the pairs to find, the pairs to leave out of rankings, and the counts of evaluated and excluded rows.

    Args:
        chosen: Pairs of the evaluated part.
        seen: Pairs of the earlier parts.
        repeats: Whether chosen pairs that are in `seen` count (`keep`) or not (`drop`).
        name: Name of the data part for error messages.

    Raises:
        DataError: No user has a chosen item to find.
    """
    new = chosen.without(seen)
    repeated, positives = chosen.known_rows - new.known_rows, chosen.known_rows + chosen.left_out
    found, hidden = (new, seen) if repeats == "drop" else (chosen, NOTHING)
    if not len(found):
        known, advice = "known from training", "leave out time in the schema to split by hash"
        if repeated:
            known, advice = "that are a new pair", "judge repeated pairs with --repeats keep"
        raise DataError(
            f"No row of the {name} part is a positive of a user and an item {known}, so a ranking cannot "
            f"be evaluated: give more rows, or {advice}."
        )
    counts = EvaluatedRows(left_out=chosen.left_out, pairs=len(found), positives=positives, repeats=repeated)
    return found, hidden, counts


def first_items(ranker: ScoresItems, users: np.ndarray, seen: Interactions, count: int) -> np.ndarray:
    """Return the best unseen items for each user: int64 `[users, count]`, the best first.

    If a user has fewer unseen items than `count`, the row ends with the id `UNKNOWN`, which is never ranked.
    """
    # Imported here, so that a training of a click model does not load the rankers.
    from shunter.models.graph.history_rankers import SparseHistoryRanker
    from shunter.models.graph.ranker import VectorRanker

    if isinstance(ranker, VectorRanker) and ranker.is_popularity:
        return _first_items_of_all(ranker.popularity().cpu(), users, seen, count)
    if isinstance(ranker, SparseHistoryRanker) and ranker.adds_positive_weights:
        items, is_known = sparse_first_items(ranker, users, seen, count)
        if not is_known.all():
            items[~is_known] = _first_items_in_blocks(ranker, users[~is_known], seen, count)
        return items
    return _first_items_in_blocks(ranker, users, seen, count)


def score_lists(top: np.ndarray, chosen: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return recall and normalised discounted cumulative gain of each row of `top`.

    Args:
        top: Items `[users, cutoff]`, the best first.
        chosen: Items to find for each user, at least one.
    """
    return score_hits(hits_of(top, chosen), np.array([len(items) for items in chosen]))


def hits_of(top: np.ndarray, chosen: list[np.ndarray]) -> np.ndarray:
    """Return a mask of the items in `top` that the user chose, bool `[users, cutoff]`."""
    assert len(top) == len(chosen), f"{len(top)} rows and {len(chosen)} users"
    base = 1 + max(int(top.max()), *(int(items.max()) for items in chosen))
    users = np.repeat(np.arange(len(chosen)), [len(items) for items in chosen])
    return is_among(np.arange(len(top))[:, None] * base + top, np.sort(users * base + np.concatenate(chosen)))


def score_hits(hits: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return recall and normalised discounted cumulative gain of each row.

    Args:
        hits: Mask of the chosen items, bool `[users, cutoff]`, the best-ranked item first.
        counts: Number of items to find for each user.
    """
    discounts = 1 / np.log2(np.arange(2, hits.shape[1] + 2))
    best_gain = discounts.cumsum()
    return hits.sum(1) / counts, hits @ discounts / best_gain[np.minimum(counts, hits.shape[1]) - 1]


def _first_items_of_all(scores: Tensor, users: np.ndarray, seen: Interactions, count: int) -> np.ndarray:
    """Return the best unseen items for each user if all users have the same scores, `[items]`: items are ranked once.

    Let a user's seen items have the ranks s_0 < s_1 < ... The k-th unseen item then has the rank k + n, where n is the
    number of i with s_i - i <= k.
    """
    lowest, highest = np.searchsorted(seen.users, [users, users + 1])
    lengths = highest - lowest
    order = UNKNOWN + 1 + scores[UNKNOWN + 1 :].argsort(descending=True, stable=True).numpy()
    rank, width = np.full(len(scores), len(order)), len(scores) + count
    rank[order] = np.arange(len(order))
    rows, first = np.repeat(np.arange(len(users)), lengths), lengths.cumsum() - lengths
    number = np.arange(len(rows)) - np.repeat(first, lengths)
    keys = np.sort(rows * width + rank[seen.items[number + np.repeat(lowest, lengths)]]) - number
    asked = np.arange(len(users))[:, None] * width + np.arange(count)
    ranks = np.arange(count) + np.searchsorted(keys, asked, side="right") - first[:, None]
    return np.append(order, np.full(count + lengths.max(initial=0), UNKNOWN))[ranks]


def _first_items_in_blocks(ranker: ScoresItems, users: np.ndarray, seen: Interactions, count: int) -> np.ndarray:
    at_once, found = max(1, SCORES_AT_ONCE // ranker.item_count), []
    for start in range(0, len(users), at_once):
        some = users[start : start + at_once]
        scores = ranker.all_scores(torch.from_numpy(some).to(ranker.device)).cpu()
        scores[:, UNKNOWN] = -torch.inf
        scores[_seen_cells(some, seen)] = -torch.inf
        values, items = _best(scores, min(count, scores.shape[1]))
        items[values == -torch.inf] = UNKNOWN
        found.append(torch.nn.functional.pad(items, (0, count - items.shape[1]), value=UNKNOWN).numpy())
    return np.concatenate(found)


def _seen_cells(users: np.ndarray, seen: Interactions) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of each seen item in a table of items with one row for each of the ascending `users`."""
    lowest, highest = np.searchsorted(seen.users, [users[0], users[-1] + 1])
    rows = np.searchsorted(users, seen.users[lowest:highest])
    is_asked = users[np.minimum(rows, len(users) - 1)] == seen.users[lowest:highest]
    return rows[is_asked], seen.items[lowest:highest][is_asked]


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest scores of each row, and their items; unlike `topk`, the first item first on ties."""
    values, items = scores.topk(min(count + 1, scores.shape[1]))
    is_cut = (values[:, count:] == values[:, count - 1 : count]).any(1)  # not all items with the last value fit
    values, items = values[:, :count], items[:, :count]
    if is_cut.any():
        _put_first_of_last(scores, values, items, is_cut.nonzero().flatten())
    items, order = items.sort(1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, items.gather(1, order)


def _put_first_of_last(scores: Tensor, values: Tensor, items: Tensor, rows: Tensor) -> None:
    """Among items that tie with the lowest selected score, select those with the smallest ids, in place."""
    # The lowest score is mostly the common score of all items without a weight, so few positions need to be searched.
    for width in (FIRST_WIDTH, scores.shape[1]):
        last = values[rows, -1:]
        is_last, is_equal = values[rows] == last, scores[rows, :width] == last
        places = is_last.sum(1)
        is_done = is_equal.sum(1) >= places
        is_first = is_equal[is_done] & (is_equal[is_done].cumsum(1) <= places[is_done, None])
        first = torch.from_numpy(np.nonzero(is_first.numpy())[1])
        items[rows[is_done]] = items[rows[is_done]].masked_scatter(is_last[is_done], first)
        rows = rows[~is_done]


SPARSE_USERS_AT_ONCE = 512  # users whose scores are computed together
ROWS_AT_ONCE = 64  # rows of scores that are compared together


def sparse_first_items(
    ranker: "SparseHistoryRanker", users: np.ndarray, seen: Interactions, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best unseen items for each user, and a mask of the users for whom the list is certain.

    The list is uncertain for users without interactions, with fewer items of a positive score than requested, or with
    equal scores of the last item and the next one.

    Args:
        ranker: Ranker on the CPU, with positive weights.
        users: Ids of the users, ascending.
        seen: Items that each user has seen.
        count: Number of items.

    Returns:
        Items, int64 `[users, count]`, the best first; and a mask of users with a certain list, bool `[users]`.
    """
    from scipy.sparse import csr_array  # imported here, since it takes long to load

    from shunter.models.graph.history_rankers import spread

    starts = np.append(0, ranker.target_counts.cumsum(0).numpy())
    width = len(ranker.target_counts)
    weights: Any = csr_array((ranker.weights.numpy(), ranker.targets.numpy(), starts), shape=(width, width))
    first_of_user = ranker.user_degrees.cumsum(0) - ranker.user_degrees
    items, is_known = np.full((len(users), count), UNKNOWN), np.zeros(len(users), bool)
    for begin in range(0, len(users), SPARSE_USERS_AT_ONCE):
        part = slice(begin, begin + SPARSE_USERS_AT_ONCE)
        some = users[part]
        lengths = ranker.user_degrees[some]
        history = ranker.history[spread(first_of_user[some], lengths)].numpy()
        ends = np.append(0, lengths.cumsum(0).numpy())
        ones = np.ones(len(history), np.float32)
        scores: Any = csr_array((ones, history, ends), shape=(len(some), width)) @ weights
        rows = np.repeat(np.arange(len(some)), np.diff(scores.indptr))
        is_hidden = np.zeros((len(some), width), bool)
        is_hidden[:, UNKNOWN] = True
        is_hidden[_seen_cells(some, seen)] = True
        scores.data[is_hidden[rows, scores.indices]] = -np.inf
        items[part], is_known[part] = _highest(scores.data, scores.indices, scores.indptr, count)
    return items, is_known


def _highest(scores: np.ndarray, items: np.ndarray, starts: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the items with the highest scores of each row, and a mask of the rows for which these items are certain.

    A row is certain if its highest scores are positive, and the last of them exceeds the next score. Rows of about
    equal length are compared together, so that their common table needs little padding.
    """
    lengths = np.diff(starts)
    found, is_known = np.full((len(lengths), count), UNKNOWN), np.zeros(len(lengths), bool)
    order = lengths.argsort(kind="stable")
    order = order[lengths[order] > count]
    for begin in range(0, len(order), ROWS_AT_ONCE):
        some = order[begin : begin + ROWS_AT_ONCE]
        own = lengths[some]
        rows = np.repeat(np.arange(len(some)), own)
        places = np.arange(len(rows)) - np.repeat(own.cumsum() - own, own)
        table = np.full((len(some), own[-1]), -np.inf, np.float32)
        table[rows, places] = scores[np.repeat(starts[some], own) + places]
        values, best = torch.from_numpy(table).topk(count + 1)
        is_known[some] = ((values[:, count - 1] > 0) & (values[:, count - 1] > values[:, count])).numpy()
        best = np.minimum(best[:, :count].numpy(), own[:, None] - 1)
        ids, by_id = torch.from_numpy(items[starts[some, None] + best].astype(np.int64)).sort(1)
        by_score = values[:, :count].gather(1, by_id).sort(dim=1, descending=True, stable=True).indices
        found[some] = ids.gather(1, by_score).numpy()
    return found, is_known
