"""Rivals that fill in a table of jobs and GPU types from what was measured of it: low rank, and the nearest job."""

from collections.abc import Sequence

import numpy as np

from benchmarks.select.gavel_product import Job

RANK, RIDGE, ROUNDS = 1, 1.0, 50  # the best for this rival of 15 that were tried on the table itself


def low_rank(jobs: Sequence[Job], revealed: np.ndarray) -> np.ndarray:
    """Completed by a matrix of low rank in logarithms, as Quasar and Gavel complete theirs.

    Each entry is an effect of the type and of the job, and a product of two factors each (alternating ridge
    regressions; Delimitrou and Kozyrakis, "Quasar", ASPLOS 2014, section 3.2, which sets missing entries from a
    singular value decomposition by stochastic gradients). A job of which nothing is known is the average job.

    Args:
        jobs: The jobs, of which this looks at nothing.
        revealed: Seconds per sample, `[jobs, types]`; NaN where hidden.
    """
    known, values = ~np.isnan(revealed), np.log(revealed)
    types = np.nanmean(values, axis=0)
    left = np.where(known, values - types, 0.0)
    # The first column of the jobs' factors meets a constant: the effect of the job.
    of_types = np.column_stack(
        [np.ones(len(types)), np.random.default_rng(0).normal(scale=0.1, size=(len(types), RANK))]
    )
    of_jobs = np.zeros((len(jobs), RANK + 1))
    ridge = RIDGE * np.eye(RANK + 1)
    for _ in range(ROUNDS):
        for job, seen in enumerate(known):
            of_jobs[job] = _ridge(of_types[seen], left[job, seen], ridge)
        for kind, seen in enumerate(known.T):
            after_job = left[seen, kind] - of_jobs[seen, 0]
            of_types[kind, 1:] = _ridge(of_jobs[seen, 1:], after_job, ridge[1:, 1:])
    return np.exp(types + of_jobs @ of_types.T)


def nearest_job(jobs: Sequence[Job], revealed: np.ndarray) -> np.ndarray:
    """Completed by the speed-up of the job most alike that ran on both types, scaled to what the job took on another.

    Alike is first of one family, then near in batch size and count. A job that never ran anywhere is scaled to nothing:
    only its types can be compared then, which is all that a choice needs.

    Args:
        jobs: The jobs.
        revealed: Seconds per sample, `[jobs, types]`; NaN where hidden.
    """
    completed = revealed.copy()
    for index, job in enumerate(jobs):
        nearest = sorted((other for other in range(len(jobs)) if other != index), key=lambda at: _far(job, jobs[at]))
        own = np.flatnonzero(~np.isnan(revealed[index]))
        for kind in np.flatnonzero(np.isnan(revealed[index])):
            sources = own if len(own) else [column for column in range(revealed.shape[1]) if column != kind]
            pairs = ((other, source) for other in nearest for source in sources)
            found = next((pair for pair in pairs if not np.isnan(revealed[pair[0], [kind, pair[1]]]).any()), None)
            if found is None:
                continue
            other, source = found
            base = revealed[index, source] if len(own) else revealed[other, source]
            completed[index, kind] = base * revealed[other, kind] / revealed[other, source]
    return np.where(np.isnan(completed), np.inf, completed)


def _ridge(inputs: np.ndarray, values: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    return np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ values)


def _far(first: Job, second: Job) -> float:
    apart = abs(np.log2(first.batch_size / second.batch_size)) + abs(np.log2(first.count / second.count))
    return float(apart) + (0.0 if first.family == second.family else 100.0)
