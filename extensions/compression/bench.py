"""Comparison of trained models: quality on the validation part, time of scoring as in serving, and bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
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

    def seconds(self, works: Sequence[Callable[[], object]]) -> list[float]:
        """Return the run time of each function in seconds, with the threads that scoring uses."""
        with applied(self.execution), torch.no_grad():
            return self.stopwatch(works)


def weight_bytes(model: Model | Ensemble) -> int:
    """Return the size of all tensors in a model's state dict, in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())


BATCH_ROWS, MOST_BATCHES = 4_096, 6


class EvaluationSample:
    """Evaluation sample: batches of rows that are spread evenly over a data split.

    Args:
        dataset: Data set.
        execution: Threads of the scoring, which runs on the CPU.
        split: Data split.
        batch_rows: Rows per batch.
        most_batches: Largest number of batches; None takes all rows.
        among: Row numbers to choose from; None is all rows of the split.

    Attributes:
        labels: Main label of each row, 0 or 1, `[rows]`.
        weights: Weight of each row, float64 `[rows]`.

    Raises:
        DataError: An array cannot be read.
    """

    def __init__(
        self,
        dataset: Dataset,
        execution: Execution,
        split: SplitName = "validation",
        *,
        batch_rows: int = BATCH_ROWS,
        most_batches: int | None = MOST_BATCHES,
        among: np.ndarray | None = None,
    ) -> None:
        loader = BatchLoader(dataset, split, batch_rows)
        numbers = np.arange(loader.rows) if among is None else np.sort(among)
        every = [numbers[start : start + batch_rows] for start in range(0, len(numbers), batch_rows)]
        targets, chosen = loader.targets(), every if most_batches is None else every[:: -(-len(every) // most_batches)]
        rows = np.concatenate(chosen)
        self._batches = [loader.read(one) for one in chosen]
        self._execution = execution
        self.labels = targets.labels.reshape(loader.rows, -1)[rows, 0]
        weights = np.ones(loader.rows) if targets.weights is None else targets.weights.reshape(loader.rows, -1)[:, 0]
        self.weights = weights[rows].astype(np.float64)

    @torch.no_grad()
    def logits(self, model: nn.Module) -> np.ndarray:
        """Return the logits of a model, float32 `[rows]`, or `[rows, tasks]`."""
        with applied(self._execution):
            return np.concatenate([model(*batch.inputs).float().numpy() for batch in self._batches])

    def main_logits(self, model: nn.Module) -> np.ndarray:
        """Return the logits of the main label only, float32 `[rows]`."""
        found = self.logits(model)
        return found.reshape(len(found), -1)[:, 0]
