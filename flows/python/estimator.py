"""Estimator of scikit-learn that runs a training of Shunter."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import RegressorTags
from sklearn.utils.validation import check_is_fitted

from shunter.errors import UnsupportedError
from shunter.flows.python import frames
from shunter.label_losses import is_for_numbers

if TYPE_CHECKING:
    from shunter.flows.python.training import Training


class Estimator(ClassifierMixin, BaseEstimator):
    """Estimator of scikit-learn whose `fit` is `shunter.train`, for `clone`, `cross_val_score` and pipelines.

    The estimator is a regressor if the option `loss` or the schema makes the label a number, otherwise a classifier.
    Each `fit` is a whole training run with limits, tracking and registration.

    Args:
        schema: Roles of the columns, see `shunter.train`; `y` of `fit` becomes the column of the label.
        options: Options of the training, such as `{"trials": 1, "max_hours": 0.1}`.

    Attributes:
        training_: Finished training run.
        classes_: The labels 0 and 1 of a classifier.

    Examples:
        >>> from sklearn.base import clone
        >>> estimator = shunter.Estimator(SCHEMA, {"model": "dnn", "trials": 1})
        >>> clone(estimator).get_params()["options"]
        {'model': 'dnn', 'trials': 1}
    """

    def __init__(self, schema: Any = None, options: dict[str, Any] | None = None) -> None:
        self.schema, self.options = schema, options

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's names
        """Train a model on a frame and its labels; raises the errors of `shunter.train`."""
        from shunter.flows.python.functions import train
        from shunter.ingestion.schema import Schema, read_schema

        label = read_schema(frames.schema_path(self.schema), Schema).label.column
        log = frames.polars_of(X).with_columns(frames.series_of(label, y))
        self.training_: Training = train(log, self.schema, **(self.options or {}))
        if not self._is_regressor:
            self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the probabilities of label 0 and of label 1, float64 `[rows, 2]`.

        Raises:
            UnsupportedError: The label is a number.
        """
        check_is_fitted(self, "training_")
        if self._is_regressor:
            raise UnsupportedError("predict_proba", "a label that is a number", "a loss of clicks")
        positive = np.asarray(self.training_.model.predict(X))
        return np.column_stack([1 - positive, positive])

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the more probable label of each row, or the predicted number."""
        if self._is_regressor:
            check_is_fitted(self, "training_")
            return np.asarray(self.training_.model.predict(X))
        is_positive = self.predict_proba(X)[:, 1] >= 0.5
        return self.classes_[is_positive.astype(int)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the accuracy of a classifier, or R² (explained share of the label's variance) of a regressor."""
        metric = r2_score if self._is_regressor else accuracy_score
        return float(metric(y, self.predict(X), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        """Return the tags of a classifier or a regressor."""
        tags = super().__sklearn_tags__()
        if self._is_regressor:
            tags.estimator_type, tags.classifier_tags, tags.regressor_tags = "regressor", None, RegressorTags()
        return tags

    @property
    def _is_regressor(self) -> bool:
        """Return True if the label is a number."""
        if (loss := (self.options or {}).get("loss")) is not None:
            return is_for_numbers(loss)
        if self.schema is None:
            return False
        from shunter.ingestion.schema import Schema, read_schema

        return read_schema(frames.schema_path(self.schema), Schema).label.loss is not None
