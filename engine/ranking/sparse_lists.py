"""Best items by a sparse ranker: only nonzero scores are computed and compared.

With 41,000 items and 100 neighbours of each item, a user has nonzero scores for a few thousand items only.
"""

from typing import Any

import numpy as np
import torch

from shunter.engine.ranking.interactions import UNKNOWN, Interactions
from shunter.models.graph.history_rankers import SparseHistoryRanker, spread

USERS_AT_ONCE = 512  # users whose scores are computed together
ROWS_AT_ONCE = 64  # rows of scores that are compared together


def sparse_first_items(
    ranker: SparseHistoryRanker, users: np.ndarray, seen: Interactions, count: int
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

    starts = np.append(0, ranker.target_counts.cumsum(0).numpy())
    width = len(ranker.target_counts)
    weights: Any = csr_array((ranker.weights.numpy(), ranker.targets.numpy(), starts), shape=(width, width))
    first_of_user = ranker.user_degrees.cumsum(0) - ranker.user_degrees
    items, is_known = np.full((len(users), count), UNKNOWN), np.zeros(len(users), bool)
    for begin in range(0, len(users), USERS_AT_ONCE):
        part = slice(begin, begin + USERS_AT_ONCE)
        some = users[part]
        lengths = ranker.user_degrees[some]
        history = ranker.history[spread(first_of_user[some], lengths)].numpy()
        ends = np.append(0, lengths.cumsum(0).numpy())
        ones = np.ones(len(history), np.float32)
        scores: Any = csr_array((ones, history, ends), shape=(len(some), width)) @ weights
        rows = np.repeat(np.arange(len(some)), np.diff(scores.indptr))
        scores.data[_seen(some, seen, width)[rows, scores.indices]] = -np.inf
        items[part], is_known[part] = _highest(scores.data, scores.indices, scores.indptr, count)
    return items, is_known


def _seen(users: np.ndarray, seen: Interactions, width: int) -> np.ndarray:
    """Return a mask of the items that are not ranked for each user, bool `[users, width]`: seen items and `UNKNOWN`."""
    found = np.zeros((len(users), width), bool)
    found[:, UNKNOWN] = True
    lowest, highest = np.searchsorted(seen.users, [users[0], users[-1] + 1])
    rows = np.searchsorted(users, seen.users[lowest:highest])
    is_asked = users[np.minimum(rows, len(users) - 1)] == seen.users[lowest:highest]
    found[rows[is_asked], seen.items[lowest:highest][is_asked]] = True
    return found


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
