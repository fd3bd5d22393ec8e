"""Configuration of one training run: hyperparameters, execution and schedule."""

from dataclasses import dataclass, field
from typing import Literal

from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.record import OPTIONAL, Record

SelectBy = Literal["ne", "auc", "logloss", "ndcg@20", "recall@20"]
Repeats = Literal["drop", "keep"]
LearningRateSchedule = Literal["constant", "plateau", "cosine"]


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(Record):
    """Hyperparameters that tuning selects besides the architecture.

    Attributes:
        dense_optimizer: Optimizer of the MLPs, by its name in `shunter.models.optimizers`.
        dense_learning_rate: Learning rate of the MLPs' optimizer.
        embedding_learning_rate: Learning rate of the row-wise Adagrad that is fused into the embeddings' backward.
        weight_decay: L2 on the MLPs' weights.
        embedding_l2: Weight decay of the embedding rows that a step touches.
        embedding_initial_bound: Largest absolute value of initial embeddings; None gives each table its own bound.
        task_weights: Weights of the losses of several tasks in the total loss, in the order of the tasks; empty: all
            weights are 1.
        learning_rate_schedule: Schedule of both learning rates over the training run. `plateau` multiplies them by
            `plateau_factor` after each epoch without a better validation figure. `cosine` lowers them along half a
            cosine to 0 at the end of the training run.
        cosine_epochs: Epochs after which a cosine is at 0 and training ends; None: those of `Schedule.max_epochs`.
        cycles: Number of cosines within the training run; each starts at the full rates again (Loshchilov and
            Hutter, "SGDR", ICLR 2017). With several cycles, the weights at the end of each are saved beside the
            checkpoint.
        plateau_factor: Factor on both learning rates after an epoch without a better validation figure, with the
            schedule `plateau`.
        loss: Name of the minimised loss in `shunter.label_losses`, with its parameter behind a colon if it is not the
            default; metrics and selection do not depend on it.
        warmup_epochs: Passes over the training part, such as 0.5, over which both rates first rise linearly from 0.
    """

    dense_optimizer: str = "adam"
    dense_learning_rate: float = 1e-3
    embedding_learning_rate: float = 0.02
    weight_decay: float = 0.0
    embedding_l2: float = 0.0
    embedding_initial_bound: float | None = None
    task_weights: tuple[float, ...] = field(default=(), metadata=OPTIONAL)
    learning_rate_schedule: LearningRateSchedule = field(default="constant", metadata=OPTIONAL)
    plateau_factor: float = field(default=0.1, metadata=OPTIONAL)
    warmup_epochs: float = field(default=0.0, metadata=OPTIONAL)
    cosine_epochs: int | None = field(default=None, metadata=OPTIONAL)
    cycles: int = field(default=1, metadata=OPTIONAL)
    loss: str = field(default="log_loss", metadata=OPTIONAL)

    def most_epochs(self, schedule: "Schedule") -> int:
        """Return the largest number of epochs: that of the schedule, or of a cosine that ends earlier."""
        own = self.cosine_epochs if self.learning_rate_schedule == "cosine" else None
        return schedule.max_epochs if own is None else min(own, schedule.max_epochs)

    @property
    def has_constant_rates(self) -> bool:
        """Return True if the learning rates are constant from the first step to the last."""
        return self.learning_rate_schedule == "constant" and not self.warmup_epochs

    @property
    def embedding_learning(self) -> EmbeddingLearning:
        """Hyperparameters of the embedding tables: learning rate, weight decay and initial bound."""
        return EmbeddingLearning(
            learning_rate=self.embedding_learning_rate,
            l2=self.embedding_l2,
            initial_bound=self.embedding_initial_bound,
        )


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Execution settings of a training run: the engine's part of a placement.

    Attributes:
        device: torch device, `cpu` or `cuda:0`.
        threads: Intra-operator threads.
        precision: `fp32`, or `bf16` for automatic mixed precision of the dense part.
        tf32: Whether fp32 matrix products are computed in TF32 on a GPU that supports it; no effect on a CPU.
        compiled: Whether the dense part is trained compiled, if a compiler works; equal within rounding, not bit for
            bit.
        batch_size: Samples per step.
        prefetch_depth: Number of prefetched batches.
        embedding_memory_bytes: Memory of the embedding tables with their optimizer state. Larger tables are in a file,
            and only rows in use and the most frequent rows are in memory; None keeps all in memory. The result is
            bitwise the same.
        rewriting: Rewriting steps that change how the layers are computed during training
            (`shunter.engine.loop.step_options`); equal within rounding, not bit for bit. The trained model has its
            original layers.
        packs_activations: Whether autograd's saved tensors of a ReLU are stored without their zeros; the result is
            bitwise the same.
        compacts_dead_units: Whether a training step leaves units that are zero for a whole batch out of the matrix
            products of the next layer; equal within rounding, not bit for bit.
    """

    device: str = "cpu"
    threads: int = 1
    precision: Literal["fp32", "bf16"] = "fp32"
    tf32: bool = True
    compiled: bool = False
    batch_size: int = 512
    prefetch_depth: int = 2
    embedding_memory_bytes: int | None = None
    rewriting: tuple[str, ...] = ()
    packs_activations: bool = False
    compacts_dead_units: bool = False

    @property
    def maps_tables(self) -> bool:
        """Return True if finished models are scored with tables in the file, because they may not fit into memory."""
        return self.embedding_memory_bytes is not None

    @property
    def window_batches(self) -> int:
        """Maximum number of batches in memory: one being read, the prefetched ones, and one being trained on."""
        return self.prefetch_depth + 2


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Duration, seed and model selection of a training run.

    Attributes:
        max_epochs: Largest number of passes over the training part.
        patience: Epochs without a better validation figure after which training stops.
        seed: Seed of the initial weights, dropout and the order of batches.
        checks: Passes over the training part, such as 1/3, after which the model is also validated within an epoch. The
            result is only reported; it affects neither weights, nor the history, nor the patience.
        select_by: Validation figure that compares epochs: it selects the best weights, the end of patience and
            plateaus. Click models use `ne`, `auc` or `logloss`; a ranking uses NDCG@20 unless this is `recall@20`.
        repeats: Whether a ranking is evaluated also on (user, item) pairs that occur in training (`keep`) or only on
            new pairs (`drop`).
    """

    max_epochs: int = 10
    patience: int = 2
    seed: int = 0
    checks: tuple[float, ...] = ()
    select_by: SelectBy = "ne"
    repeats: Repeats = "drop"
