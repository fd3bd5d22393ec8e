"""Compares finished models: quality on the validation part, time on the path that the product scores on, and bytes."""

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
    """Where models are compared.

    Attributes:
        dataset: The data that they were trained on.
        execution: Threads and precision of the scoring.
        score: Scores some rows with a model, as the product does.
        rows: Rows as `score` takes them.
        stopwatch: Measures; tests give another.
        batch_rows: How many rows there are.
    """

    dataset: Dataset
    execution: Execution
    score: Callable[[Model | Ensemble, Any], object]
    rows: Any
    stopwatch: Stopwatch = alternating_seconds
    batch_rows: int = 2_048
    _known: dict[int, tuple[object, Metrics]] = field(default_factory=dict, init=False, repr=False)

    def quality(self, model: Model | Ensemble) -> Metrics:
        """Quality on the validation part, found once for each model.

        Raises:
            DataError: An array cannot be read.
        """
        if id(model) not in self._known:  # the model is kept beside, so that no other one gets its id
            found = evaluate(model, self.dataset, "validation", self.execution).metrics
            self._known[id(model)] = (model, found)
        return self._known[id(model)][1]

    def milliseconds(self, models: Sequence[Model | Ensemble]) -> list[float]:
        """Time that each takes to score the rows."""
        works = [lambda model=model: self.score(model, self.rows) for model in models]
        return [1e3 * seconds for seconds in self.seconds(works)]

    def seconds(self, works: Sequence[Callable[[], object]]) -> list[float]:
        """Time of some works, with the threads of the scoring."""
        with applied(self.execution), torch.no_grad():
            return self.stopwatch(works)


def weight_bytes(model: Model | Ensemble) -> int:
    """Bytes of all that a file of the model holds."""
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
