"""Landmarks: quality of cheap learners on a data set, which shows how much can be learned and the risk of overfitting.

Landmarks in the sense of Pfahringer, Bensusan and Giraud-Carrier, "Meta-Learning by Landmarking Various Learning
Algorithms", ICML 2000. All learners are convex or closed-form, so the results depend neither on the order of the rows
nor on the numbering of the ids.
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from shunter.engine.metrics import area_under_roc, compute_metrics
from shunter.extensions.meta_learning.sample import Sample

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MOST_ROWS = 20_000  # largest number of rows for the logistic regressions
PRIOR_ROWS = 10.0  # weight of the base rate in the rate of an id, as a number of rows
PENALTIES = {"logistic_ne": 0.1, "free_logistic_ne": 10.0}  # inverse strength of the L2 penalty, as scikit-learn's C
MOST_ITERATIONS = 60
LARGEST_NE = 2.0  # upper bound: larger values are all equally bad


def landmarks(train: Sample, validation: Sample) -> dict[str, float]:
    """Return NE or AUC of cheap learners, trained on one sample and evaluated on the other.

    Returns:
        `field_ne`: NE of the best single field's table of rates; `bayes_auc`: AUC of naive Bayes over all fields;
        `logistic_ne` and `free_logistic_ne`: NE of logistic regressions on all ids and numbers. The second regression
        has a hundredth of the penalty: a worse NE means that the data is easily overfitted. Empty if a part has only
        one class.
    """
    if min(len(np.unique(sample.labels)) for sample in (train, validation)) < 2:
        return {}
    evidence = [_log_odds(train, validation, field) for field in range(len(train.ids))]
    base = _log_odds_of(train.labels.mean())
    return {
        **(
            {
                "field_ne": min(_ne(validation.labels, base + moved) for moved in evidence),
                "bayes_auc": area_under_roc(validation.labels, np.sum(evidence, axis=0)),
            }
            if evidence
            else {}
        ),
        **_logistic(train, validation),
    }


def _ne(labels: np.ndarray, logits: np.ndarray) -> float:
    return min(compute_metrics(labels, logits).ne, LARGEST_NE)


def _log_odds_of(rate: np.ndarray) -> np.ndarray:
    return np.log(rate) - np.log1p(-rate)


def _log_odds(train: Sample, validation: Sample, field: int) -> np.ndarray:
    """Return the change that one field makes to the log odds of each validation row; for a bag the mean of its ids.

    The rate of an id is shrunk towards the base rate, which is also the rate of an unseen id.
    """
    seen, place = np.unique(train.ids[field], return_inverse=True)
    base = train.labels.mean()
    clicks = np.bincount(place, weights=train.labels[train.rows_of[field]], minlength=len(seen))
    rows = np.bincount(place, minlength=len(seen))
    evidence = _log_odds_of((clicks + PRIOR_ROWS * base) / (rows + PRIOR_ROWS)) - _log_odds_of(base)
    evidence = np.append(evidence, 0.0)  # the entry for unseen ids
    found = np.searchsorted(seen, validation.ids[field])
    is_seen = np.isin(validation.ids[field], seen)
    moved = evidence[np.where(is_seen, found, len(seen))]
    owners = validation.rows_of[field]
    lengths = np.bincount(owners, minlength=validation.rows)
    return np.bincount(owners, weights=moved, minlength=validation.rows) / np.maximum(lengths, 1)


def _logistic(train: Sample, validation: Sample) -> dict[str, float]:
    """Return the NE of one logistic regression per penalty, on at most `MOST_ROWS` evenly spaced rows of each part."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    known = [np.unique(ids) for ids in train.ids]
    inputs, judged = _matrix(train, known, train), _matrix(validation, known, train)
    learned, scored = _spread(train.rows), _spread(validation.rows)
    if len(np.unique(train.labels[learned])) < 2 or len(np.unique(validation.labels[scored])) < 2:
        return {}
    found = {}
    for name, penalty in PENALTIES.items():
        model = LogisticRegression(C=penalty, max_iter=MOST_ITERATIONS)
        # Use one thread, since the solver's sums are so short that waking threads takes longer.
        with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a landmark need not be exact
            model.fit(inputs[learned], train.labels[learned])
        found[name] = _ne(validation.labels[scored], model.decision_function(judged[scored]))
    return found


def _spread(rows: int) -> np.ndarray:
    return np.arange(rows) if rows <= MOST_ROWS else np.linspace(0, rows - 1, MOST_ROWS).astype(np.int64)


def _matrix(sample: Sample, known: list[np.ndarray], scale: Sample) -> "csr_matrix":
    """Return a matrix with a column for each known id and each number; `scale` standardises the numbers."""
    from scipy.sparse import csr_matrix, hstack

    blocks = []
    for ids, owners, seen in zip(sample.ids, sample.rows_of, known, strict=True):
        is_seen = np.isin(ids, seen)
        places = (owners[is_seen], np.searchsorted(seen, ids[is_seen]))
        blocks.append(csr_matrix((np.ones(len(places[0])), places), shape=(sample.rows, len(seen))))
    deviation = scale.dense.std(axis=0)
    blocks.append(csr_matrix((sample.dense - scale.dense.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)))
    return csr_matrix(hstack(blocks))
