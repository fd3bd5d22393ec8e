"""The estimator keeps scikit-learn's contract; that it trains is shown on a training that only writes down its log."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import shunter
from shunter.errors import UnsupportedError
from shunter.flows.python import functions
from tests.flows.python.shop import SCHEMA, shop_log

OPTIONS = {"trials": 1, "max_epochs": 1}


class _ByItem:
    """Stands for a trained model: odd items are clicked."""

    def predict(self, frame: Any) -> np.ndarray:
        return 0.1 + 0.8 * (np.asarray(frame["item"]) % 2)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[pl.DataFrame, Any, dict[str, Any]]]:
    """Logs, schemas and options of the trainings."""
    found: list[tuple[pl.DataFrame, Any, dict[str, Any]]] = []

    def train(log: pl.DataFrame, schema: Any, **options: Any) -> Any:
        found.append((log, schema, options))
        return SimpleNamespace(model=_ByItem())

    monkeypatch.setattr(functions, "train", train)
    return found


def test_it_can_be_cloned_and_told_from_a_regressor() -> None:
    estimator = shunter.Estimator(SCHEMA, OPTIONS)
    assert estimator.get_params() == {"schema": SCHEMA, "options": OPTIONS}
    copy = clone(estimator)
    assert isinstance(copy, shunter.Estimator)
    assert copy.get_params() == estimator.get_params()
    assert is_classifier(estimator)
    with pytest.raises(NotFittedError):
        estimator.predict(shop_log(2))


def test_folds_are_trained_on_with_the_labels_they_are_given(logs: list[Any]) -> None:
    log = shop_log(100)
    estimator = shunter.Estimator(SCHEMA, OPTIONS)
    scores = cross_val_score(estimator, log.drop(columns="click"), log["click"], cv=2, scoring="roc_auc")
    assert (scores > 0.5).all()
    assert [(len(rows), schema, options) for rows, schema, options in logs] == [(50, SCHEMA, OPTIONS)] * 2
    assert pl.concat(rows for rows, _, _ in logs)["click"].sum() == log["click"].sum()


def test_labels_follow_the_probabilities(logs: list[Any]) -> None:
    log = shop_log(20)
    estimator = shunter.Estimator(SCHEMA).fit(log, log["click"])
    assert estimator.predict(log).tolist() == (log["item"] % 2).tolist()
    np.testing.assert_allclose(estimator.predict_proba(log).sum(1), 1)


@pytest.mark.parametrize(
    ("schema", "options"),
    [(SCHEMA, {"loss": "mse"}), ({**SCHEMA, "label": {"column": "click", "loss": "poisson"}}, None)],
)
def test_it_is_a_regressor_where_the_label_is_a_number(schema: Any, options: Any, logs: list[Any]) -> None:
    log, estimator = shop_log(40), shunter.Estimator(schema, options)
    assert is_regressor(estimator)
    assert not is_classifier(estimator)
    fitted = estimator.fit(log, 0.1 + 0.8 * (log["item"] % 2))
    np.testing.assert_allclose(fitted.predict(log), 0.1 + 0.8 * (log["item"] % 2))
    assert fitted.score(log, 0.1 + 0.8 * (log["item"] % 2)) == pytest.approx(1)
    assert not is_regressor(shunter.Estimator(SCHEMA, {"loss": "focal"}))
    with pytest.raises(UnsupportedError):
        fitted.predict_proba(log)
