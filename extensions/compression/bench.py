"""Comparison of trained models: quality on the validation part, time of scoring as in serving, and bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.step import applied
from shunter.engine.loop.stopwatch import Stopwatch, alternating_seconds
from shunter.engine.metrics import Metrics
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model


@dataclass(frozen=True)
class Bench:
    """Measurement of several models under equal conditions.

    Attributes:
        dataset: Data set that the models were trained on.
        execution: Threads and precision of the scoring.
        score: Function that scores rows with a model, as in serving.
        rows: Rows in the format of `score`.
        stopwatch: Function that measures times; replaced in tests.
        batch_rows: Number of rows in `rows`.
    """

    dataset: Dataset
    execution: Execution
    score: Callable[[Model | Ensemble, Any], object]
    rows: Any
    stopwatch: Stopwatch = alternating_seconds
    batch_rows: int = 2_048
    _known: dict[int, tuple[object, Metrics]] = field(default_factory=dict, init=False, repr=False)

    def quality(self, model: Model | Ensemble) -> Metrics:
        """Return the quality on the validation part, cached for each model.

        Raises:
            DataError: An array cannot be read.
        """
        if id(model) not in self._known:  # the cache holds the model, so that its id is not reused
            found = evaluate(model, self.dataset, "validation", self.execution).metrics
            self._known[id(model)] = (model, found)
        return self._known[id(model)][1]

    def milliseconds(self, models: Sequence[Model | Ensemble]) -> list[float]:
        """Return the time that each model takes to score the rows, in milliseconds."""
        works = [lambda model=model: self.score(model, self.rows) for model in models]
        return [1e3 * seconds for seconds in self.seconds(works)]

    def seconds(self, works: Sequence[Callable[[], object]]) -> list[float]:
        """Return the run time of each function in seconds, with the threads that scoring uses."""
        with applied(self.execution), torch.no_grad():
            return self.stopwatch(works)


def weight_bytes(model: Model | Ensemble) -> int:
    """Return the size of all tensors in a model's state dict, in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
