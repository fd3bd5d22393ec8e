"""Sample of rows of a data split that is read once and scored by many models."""

import numpy as np
import torch
from torch import nn

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied

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
