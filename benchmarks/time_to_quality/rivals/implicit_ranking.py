"""implicit: alternating least squares and BPR (https://github.com/benfred/implicit).

The settings are the best on the validation part of Movielens1M_m1: for ALS of four (NDCG@20 .180 to .203), for BPR of
three (.100 to .133). Both stop where that part has not been ranked better three times in a row, and keep the best
factors.
"""
# pyright: reportMissingImports=false

from contextlib import suppress
from typing import Any

import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from threadpoolctl import threadpool_limits

from benchmarks.time_to_quality.rivals.job import Job, read_job
from benchmarks.time_to_quality.rivals.ranking import ndcg, read_matrices

SETTINGS: dict[str, dict[str, Any]] = {
    "als": {"factors": 64, "regularization": 50.0, "alpha": 4.0},
    "bpr": {"factors": 64, "regularization": 0.01, "learning_rate": 0.01},
}
EPOCHS_BETWEEN = {"als": 1, "bpr": 5}  # an epoch of BPR takes less than ranking for all users
PATIENCE = 3


class EnoughError(Exception):
    """No other epoch is worth its time."""


def main() -> None:
    """Read, train, keep the best factors, score the test part."""
    job = read_job()
    parts = read_matrices(job.files)
    with threadpool_limits(1, "blas"):  # as implicit itself asks for
        best = train(job, parts)
    job.finish(ndcg(*best, parts["test"], parts["train"] + parts["validation"]), SETTINGS[job.model])


def train(job: Job, parts: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Train until it pays no more; the factors of users and items that ranked the validation part best."""
    kind = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}[job.model]
    model = kind(**SETTINGS[job.model], iterations=10**6, num_threads=job.threads, random_state=job.seed)
    best: list[Any] = [-1.0, None, 0]

    def look(iteration: int, *_: Any) -> None:
        if (iteration + 1) % EPOCHS_BETWEEN[job.model]:
            return
        quality = ndcg(model.user_factors, model.item_factors, parts["validation"], parts["train"])
        job.reached(quality)
        if quality > best[0]:
            best[:] = [quality, (model.user_factors.copy(), model.item_factors.copy()), 0]
        else:
            best[2] += 1
        if best[2] >= PATIENCE or job.is_over:
            raise EnoughError

    with suppress(EnoughError):
        model.fit(parts["train"], show_progress=False, callback=look)
    return best[1]


if __name__ == "__main__":
    main()
