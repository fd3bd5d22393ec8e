"""Initialisation and training hyperparameters of embedding tables."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EmbeddingLearning:
    """Initialisation and update of the rows of all tables of a model.

    Attributes:
        learning_rate: Step size of the row-wise Adagrad, which is fused into the backward pass of the tables.
        l2: Weight decay of the rows that a step touches, see `shunter.models.embeddings.role.EmbeddingTables.l2`.
        initial_bound: Bound of the initial weights; None gives each table its own bound, see `EmbeddingTables`.
    """

    learning_rate: float = 0.02
    l2: float = 0.0
    initial_bound: float | None = None
