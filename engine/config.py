"""How one training runs: what is learned with, on what, and for how long."""

from dataclasses import dataclass, field
from typing import Literal

from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.record import OPTIONAL, Record

SelectBy = Literal["ne", "auc", "logloss", "ndcg@20", "recall@20"]
Repeats = Literal["drop", "keep"]
LearningRateSchedule = Literal["constant", "plateau", "cosine"]


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(Record):
    """What tuning chooses beside the architecture.

    Attributes:
        dense_optimizer: optimizer of the MLPs, by its name in `shunter.models.optimizers`.
        dense_learning_rate: step size of the MLPs' optimiser.
        embedding_learning_rate: step size of the row-wise Adagrad that is fused into the embeddings' backward.
        weight_decay: L2 on the MLPs' weights.
        embedding_l2: weight decay of the embedding rows that a step touches.
        embedding_initial_bound: largest absolute value of initial embeddings; None gives each table its own.
        task_weights: Weights of the losses of several tasks in their sum, in the order of the tasks; empty: all are 1.
        learning_rate_schedule: Course of both learning rates over the training: `plateau` multiplies them by
            `plateau_factor` after each epoch that brought no better validation, `cosine` lowers them along half a
            cosine to 0 at the end of the training.
        cosine_epochs: passes after which a cosine is at 0 and the training ends; None: those of `Schedule.max_epochs`.
        cycles: cosines within the training, each of which begins at the full rates again (Loshchilov and Hutter,
            "SGDR", ICLR 2017); with several, the weights at the end of each are kept beside the checkpoint.
        plateau_factor: share of both learning rates that is left after an epoch without a better validation, with the
            schedule `plateau`.
        warmup_epochs: passes over the training part, such as 0.5, in which both rates first rise from 0 in a line.
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

    def most_epochs(self, schedule: "Schedule") -> int:
        """Passes of the longest training: those of its schedule, or of a cosine that ends earlier."""
        own = self.cosine_epochs if self.learning_rate_schedule == "cosine" else None
        return schedule.max_epochs if own is None else min(own, schedule.max_epochs)

    @property
    def has_constant_rates(self) -> bool:
        """Whether the learning rates stay what they are from the first step to the last."""
        return self.learning_rate_schedule == "constant" and not self.warmup_epochs

    @property
    def embedding_learning(self) -> EmbeddingLearning:
        """What of them is of the tables."""
        return EmbeddingLearning(
            learning_rate=self.embedding_learning_rate,
            l2=self.embedding_l2,
            initial_bound=self.embedding_initial_bound,
        )


@dataclass(frozen=True, kw_only=True)
class Execution:
    """On what the training runs: the engine's view of a placement.

    Attributes:
        device: torch device, `cpu` or `cuda:0`.
        threads: intra-operator threads.
        precision: `fp32`, or `bf16` for automatic mixed precision of the dense part.
        tf32: computes the fp32 products of matrices in TF32 where the device is a GPU that can; without effect on a
            processor.
        compiled: trains the dense part compiled, where a compiler works; equal within rounding, not bit by bit.
        batch_size: samples a step.
        prefetch_depth: batches held ready ahead of the step.
        embedding_memory_bytes: memory for the embedding tables with their optimiser's state: larger ones lie in a file,
            of which the rows in work and those asked for most are in memory; None keeps all in memory. The result is
            bitwise the same.
        rewriting: steps by which the layers are computed in another way while they learn
            (`shunter.models.rewriting.scheme`); equal within rounding, not bit by bit. Whatever comes of the training
            has its layers as they are.
        packs_activations: keeps what autograd needs of a ReLU without its zeros
            (`shunter.engine.loop.packed_activations`); the result is bitwise the same.
        compacts_dead_units: leaves units that are zero for a whole batch out of the products behind them
            (`shunter.engine.loop.compaction`); equal within rounding, not bit by bit.
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
        """Whether finished models are scored with their tables in the file, for they may not fit into memory."""
        return self.embedding_memory_bytes is not None

    @property
    def window_batches(self) -> int:
        """Batches that may be in work: one that is read, those held ready, and the one that is trained."""
        return self.prefetch_depth + 2


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """For how long, and from which seed.

    Attributes:
        max_epochs: longest training, in passes over the training part.
        patience: epochs without a better validation after which training stops.
        seed: Seed of the initial weights, dropout and the order of batches.
        checks: passes over the training part, such as 1/3, after which the model is validated within an epoch too. Such
            a check is reported, and changes nothing else: neither weights, nor the history, nor the patience.
        select_by: figure of the validation part by which an epoch is better than another: whose weights are kept, when
            patience ends and when a plateau begins. Of clicks one of the first three; a ranking is judged by NDCG@20
            if not by recall@20.
        repeats: Whether a ranking is judged on new (user, item) pairs alone, or on repeated ones too.
    """

    max_epochs: int = 10
    patience: int = 2
    seed: int = 0
    checks: tuple[float, ...] = ()
    select_by: SelectBy = "ne"
    repeats: Repeats = "drop"
