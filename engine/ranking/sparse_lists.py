"""Best items by a sparse ranker: only the scores that are not 0 are computed and compared.

With 41,000 items and 100 neighbours a user has scores for a few thousand items; all other items have the score 0.
"""

from typing import Any

import numpy as np
import torch

from shunter.engine.ranking.interactions import UNKNOWN, Interactions
from shunter.models.graph.history_rankers import SparseHistoryRanker, spread

USERS_AT_ONCE = 256  # whose scores are compared together


def sparse_first_items(
    ranker: SparseHistoryRanker, users: np.ndarray, seen: Interactions, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best unseen items for each user, and the users whose list is certain.

    The list is uncertain for users without interactions, with fewer items of a positive score than requested, or with
    equal scores of the last item and the next one.

    Args:
        ranker: Ranker on the CPU, with positive weights.
        users: Ids of the users, ascending.
        seen: Items that each user has seen.
        count: Number of items.

    Returns:
        Items, int64 `[users, count]`, the best first, and whether they are known, bool `[users]`.
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
    """Return which items are not ranked for each user, bool `[users, width]`: seen ones and the unknown one."""
    found = np.zeros((len(users), width), bool)
    found[:, UNKNOWN] = True
    lowest, highest = np.searchsorted(seen.users, [users[0], users[-1] + 1])
    rows = np.searchsorted(users, seen.users[lowest:highest])
    is_asked = users[np.minimum(rows, len(users) - 1)] == seen.users[lowest:highest]
    found[rows[is_asked], seen.items[lowest:highest][is_asked]] = True
    return found


def _highest(scores: np.ndarray, items: np.ndarray, starts: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the items of the highest scores of each row, and whether these are positive and distinct from the next."""
    lengths = np.diff(starts)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(scores)) - np.repeat(starts[:-1], lengths)
    shape = (len(lengths), max(count + 1, int(lengths.max(initial=0))))
    table, names = np.full(shape, -np.inf, np.float32), np.zeros(shape, np.int64)
    table[rows, places], names[rows, places] = scores, items
    values, best = torch.from_numpy(table).topk(count + 1)
    is_known = (values[:, count - 1] > 0) & (values[:, count - 1] > values[:, count])
    values, found = values[:, :count], torch.from_numpy(names).gather(1, best[:, :count])
    found, order = found.sort(1)
    order = values.gather(1, order).sort(dim=1, descending=True, stable=True).indices
    return found.gather(1, order).numpy(), is_known.numpy()
