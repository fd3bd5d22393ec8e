"""Learning rate schedule of a training run: the rates of layers and embedding tables change by the same factor."""

import math

import torch

from shunter.engine.config import Hyperparameters
from shunter.models.embeddings.role import EmbeddingTables

LOWEST_SHARE = 1e-3  # smallest factor on the full rates after plateaus: even smaller updates would only cost time


class LearningRates:
    """Learning rate scheduler for the dense layers and the embedding tables.

    The factor on the full rates depends only on the step and the number of plateaus so far. A training run that is
    resumed from a checkpoint therefore continues with the same rates. Constant rates are never changed.

    After a plateau, training continues from the weights of the last epoch, not from the best weights. FuxiCTR does the
    same (`reduce_lr_on_plateau` of `BaseModel`, used for the BARS benchmark).

    Args:
        hyperparameters: Full rates, and their schedule.
        optimizer: Optimizer of the layers.
        tables: Embedding tables, which update themselves.
        epoch_steps: Steps of one pass over the training part.
        max_epochs: Largest number of epochs.
    """

    def __init__(
        self,
        hyperparameters: Hyperparameters,
        optimizer: torch.optim.Optimizer,
        tables: EmbeddingTables,
        *,
        epoch_steps: int,
        max_epochs: int,
    ) -> None:
        self._hyperparameters, self._optimizer, self._tables = hyperparameters, optimizer, tables
        self._warmup_steps = round(hyperparameters.warmup_epochs * epoch_steps)
        self._cycle_steps = epoch_steps * max_epochs / hyperparameters.cycles
        self._applied = 1.0

    def share(self, step: int, plateaus: int) -> float:
        """Return the factor on the full rates at a step.

        Args:
            step: Number of steps before this step.
            plateaus: Number of epochs before this step without a better validation figure.
        """
        kind, share = self._hyperparameters.learning_rate_schedule, 1.0
        if kind == "plateau":
            share = max(self._hyperparameters.plateau_factor**plateaus, LOWEST_SHARE)
        elif kind == "cosine":
            within = step % self._cycle_steps if self._hyperparameters.cycles > 1 else step
            share = (1 + math.cos(math.pi * within / self._cycle_steps)) / 2
        return share * min(1.0, (step + 1) / self._warmup_steps) if self._warmup_steps else share

    def of(self, step: int, plateaus: int) -> dict[str, float]:
        """Return the learning rates at a step: `dense` for the layers, `embedding` for the embedding tables."""
        full, share = self._hyperparameters, self.share(step, plateaus)
        return {"dense": full.dense_learning_rate * share, "embedding": full.embedding_learning_rate * share}

    def apply(self, step: int, plateaus: int) -> None:
        """Set the learning rates of the next step; called between two steps."""
        share = self.share(step, plateaus)
        if share == self._applied:
            return
        rates = self.of(step, plateaus)
        for group in self._optimizer.param_groups:
            group["lr"] = rates["dense"]
        self._tables.set_learning_rate(rates["embedding"])
        self._applied = share
