"""What the rows of embedding tables begin with, and what they learn with."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EmbeddingLearning:
    """How the rows of all tables of a model are drawn and updated.

    Attributes:
        learning_rate: Step size of the row-wise Adagrad, which is fused into the tables' backward.
        l2: Weight decay of the rows that a step touches, see `shunter.models.embeddings.role.EmbeddingTables.l2`.
        initial_bound: First weights lie in plus and minus it; None gives each table its own, see `EmbeddingTables`.
    """

    learning_rate: float = 0.02
    l2: float = 0.0
    initial_bound: float | None = None
