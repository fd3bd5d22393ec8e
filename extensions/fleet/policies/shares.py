"""Rules for a job's share of each accelerator type: the linear programs of Gavel (Narayanan et al., OSDI 2020)."""

from collections.abc import Callable

import numpy as np

Shares = np.ndarray
"""Fraction of time that each job (row) should spend on each accelerator type (column)."""

ShareRule = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], Shares]
"""Function from rates, remaining work, demands, weights and capacities to shares.

Rates are progress per second of each job on each type (0: it cannot run there). Remaining work is in the same units.
Demands are the accelerators that each job (row) needs on each type (column).
"""


def max_min(
    rates: np.ndarray, left: np.ndarray, demand: np.ndarray, weight: np.ndarray, capacity: np.ndarray
) -> Shares:
    """Return max-min fair shares that ignore types: all jobs get equal time, on any accelerator."""
    return _largest_least((rates > 0) * demand / weight[:, None], demand, capacity, rates)


def max_min_heterogeneous(
    rates: np.ndarray, left: np.ndarray, demand: np.ndarray, weight: np.ndarray, capacity: np.ndarray
) -> Shares:
    """Return max-min fair shares of progress, relative to that of the job on an equal part of the cluster."""
    equal = rates @ (capacity / capacity.sum())
    return _largest_least(rates / equal[:, None] * demand / weight[:, None], demand, capacity, rates)


def min_makespan(
    rates: np.ndarray, left: np.ndarray, demand: np.ndarray, weight: np.ndarray, capacity: np.ndarray
) -> Shares:
    """Return the shares with the smallest makespan."""
    return _largest_least(rates / np.maximum(left, 1e-9)[:, None], demand, capacity, rates)


def _largest_least(gains: np.ndarray, demand: np.ndarray, capacity: np.ndarray, rates: np.ndarray) -> Shares:
    """Return shares that maximise the least gain and, among these, the sum of gains.

    The second program makes the result nearly unique: with the first alone, unneeded time would be assigned
    arbitrarily.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack, vstack

    jobs, types = gains.shape
    scaled = gains / gains.max()
    cells = np.arange(jobs * types)
    time = csr_array((np.ones(cells.size), (cells // types, cells)), shape=(jobs, cells.size))
    held = csr_array((demand.ravel(), (cells % types, cells)), shape=(types, cells.size))
    gained = csr_array((scaled.ravel(), (cells // types, cells)), shape=(jobs, cells.size))
    bounds = [(0.0, 1.0 if rate > 0 else 0.0) for rate in rates.ravel()]
    limits = np.concatenate([np.ones(jobs), capacity])
    least_column = csr_array(np.concatenate([np.zeros(jobs + types), np.ones(jobs)])[:, None])
    matrix = hstack([vstack([time, held, -gained]), least_column]).tocsr()
    goal = np.zeros(cells.size + 1)
    goal[-1] = -1.0
    first = linprog(
        goal, A_ub=matrix, b_ub=np.concatenate([limits, np.zeros(jobs)]), bounds=[*bounds, (0.0, None)], method="highs"
    )
    assert first.success, f"no shares: {first.message}"
    least = -first.fun * (1 - 1e-7)
    relative = scaled / np.maximum(scaled.max(axis=1, keepdims=True), 1e-12)
    second = linprog(
        -relative.ravel(),
        A_ub=vstack([time, held, -gained]).tocsr(),
        b_ub=np.concatenate([limits, np.full(jobs, -least)]),
        bounds=bounds,
        method="highs",
    )
    found = second.x if second.success else first.x[:-1]
    return np.clip(found.reshape(jobs, types), 0.0, 1.0)
