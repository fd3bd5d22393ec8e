"""Interactions of users and items as sparse matrices, and NDCG@20 by full ranking, for rivals that have neither."""
# pyright: reportMissingImports=false

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_matrix

CUTOFF = 20


def read_pairs(path: str) -> np.ndarray:
    """Users and items of the rows that were chosen, int64 `[rows, 2]`; columns are `chosen`, `user`, `item`."""
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)
    return rows[rows[:, 0] == 1, 1:]


def read_matrices(files: Mapping[str, str]) -> dict[str, csr_matrix]:
    """A matrix users x items of ones for each part."""
    pairs = {part: read_pairs(path) for part, path in files.items()}
    users, items = 1 + np.max([one.max(axis=0) for one in pairs.values()], axis=0)
    return {
        part: csr_matrix((np.ones(len(one), np.float32), (one[:, 0], one[:, 1])), shape=(users, items))
        for part, one in pairs.items()
    }


def ndcg(users: np.ndarray, items: np.ndarray, chosen: csr_matrix, seen: csr_matrix) -> float:
    """Mean over users with something to be found of NDCG@20; what they have seen is not ranked.

    Args:
        users: Factors float `[users, dimensions]`.
        items: Factors float `[items, dimensions]`.
        chosen: What is to be found.
        seen: What each user has seen, and the items that anyone has: others are not ranked.
    """
    known = np.asarray(seen.sum(axis=0)).ravel() > 0
    gains = 1 / np.log2(np.arange(2, CUTOFF + 2))
    ideal = np.concatenate([[0.0], np.cumsum(gains)])
    total, counted = 0.0, 0
    for user in np.flatnonzero(np.diff(seen.indptr)):
        wanted = chosen.indices[chosen.indptr[user] : chosen.indptr[user + 1]]
        wanted = wanted[known[wanted]]
        if not len(wanted):
            continue
        scores = items @ users[user]
        scores[~known] = -np.inf
        scores[seen.indices[seen.indptr[user] : seen.indptr[user + 1]]] = -np.inf
        first = np.argpartition(-scores, CUTOFF)[:CUTOFF]
        first = first[np.argsort(-scores[first], kind="stable")]
        total += gains[np.isin(first, wanted)].sum() / ideal[min(len(wanted), CUTOFF)]
        counted += 1
    return total / counted
