"""The learning rates while a training goes on: those of the layers and of the tables rise and fall together."""

import math

import torch

from shunter.engine.config import Hyperparameters
from shunter.models.embeddings.role import EmbeddingTables

LOWEST_SHARE = 1e-3  # below which a plateau lowers no further: updates would only cost time


class LearningRates:
    """Gives each step the rates that its schedule has for it.

    The share of the full rates follows from the step and the number of plateaus so far alone, so that a training that
    goes on from a checkpoint goes on with the rates it would have had. Rates that stay constant are never touched.

    After a plateau the weights stay those of the last epoch, as FuxiCTR has it (`reduce_lr_on_plateau` of its
    `BaseModel`, by which BARS' figures came about): the best ones are only kept for the end.

    Args:
        hyperparameters: Full rates, and how they change.
        optimizer: Optimiser of the layers.
        tables: Tables, which update themselves.
        epoch_steps: Steps of a pass over the training part.
        max_epochs: Longest training.
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
        """Share of the full rates at a step.

        Args:
            step: Steps before it.
            plateaus: Epochs before it that brought no better validation.
        """
        kind, share = self._hyperparameters.learning_rate_schedule, 1.0
        if kind == "plateau":
            share = max(self._hyperparameters.plateau_factor**plateaus, LOWEST_SHARE)
        elif kind == "cosine":
            within = step % self._cycle_steps if self._hyperparameters.cycles > 1 else step
            share = (1 + math.cos(math.pi * within / self._cycle_steps)) / 2
        return share * min(1.0, (step + 1) / self._warmup_steps) if self._warmup_steps else share

    def of(self, step: int, plateaus: int) -> dict[str, float]:
        """The rates at a step, of the layers as `dense` and of the tables as `embedding`."""
        full, share = self._hyperparameters, self.share(step, plateaus)
        return {"dense": full.dense_learning_rate * share, "embedding": full.embedding_learning_rate * share}

    def apply(self, step: int, plateaus: int) -> None:
        """Let the next step have its rates; called between two steps."""
        share = self.share(step, plateaus)
        if share == self._applied:
            return
        rates = self.of(step, plateaus)
        for group in self._optimizer.param_groups:
            group["lr"] = rates["dense"]
        self._tables.set_learning_rate(rates["embedding"])
        self._applied = share
