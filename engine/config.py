"""How one training runs: what is learned with, on what, and for how long."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

DenseOptimizer = Literal["adam", "adagrad", "sgd", "shampoo"]


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What tuning chooses beside the architecture.

    Attributes:
        dense_optimizer: optimiser of the MLPs.
        dense_learning_rate: its step size.
        embedding_learning_rate: step size of the row-wise Adagrad that is fused into the embeddings' backward.
        weight_decay: L2 on the MLPs' weights.
        embedding_l2: weight decay of the embedding rows that a step touches.
        embedding_initial_bound: initial embeddings lie in plus and minus it; None gives each table its own.
        task_weights: Weights of the losses of several tasks in their sum, in the order of the tasks; empty: all are 1.
    """

    dense_optimizer: DenseOptimizer = "adam"
    dense_learning_rate: float = 1e-3
    embedding_learning_rate: float = 0.02
    weight_decay: float = 0.0
    embedding_l2: float = 0.0
    embedding_initial_bound: float | None = None
    task_weights: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; without the weights of tasks where all are 1."""
        values = asdict(self)
        if not self.task_weights:
            del values["task_weights"]
        return values


@dataclass(frozen=True, kw_only=True)
class Execution:
    """On what the training runs: the engine's view of a placement.

    Attributes:
        device: torch device, `cpu` or `cuda:0`.
        threads: intra-operator threads.
        precision: `fp32`, or `bf16` for automatic mixed precision of the dense part.
        compiled: trains the dense part compiled, where a compiler works; equal within rounding, not bit by bit.
        batch_size: samples a step.
        prefetch_depth: batches held ready ahead of the step.
        embedding_cache_rows: keeps the embedding tables in a file, and as many of their rows in memory; None keeps
            all in memory. The result is bitwise the same.
    """

    device: str = "cpu"
    threads: int = 1
    precision: Literal["fp32", "bf16"] = "fp32"
    compiled: bool = False
    batch_size: int = 512
    prefetch_depth: int = 2
    embedding_cache_rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """For how long, and from which seed.

    Attributes:
        max_epochs: longest training, in passes over the training part.
        patience: epochs without a better validation NE after which training stops.
        seed: Seed of the initial weights, dropout and the order of batches.
        checks: passes over the training part, such as 1/3, after which the model is validated within an epoch too. Such
            a check is reported, and changes nothing else: neither weights, nor the history, nor the patience.
    """

    max_epochs: int = 10
    patience: int = 2
    seed: int = 0
    checks: tuple[float, ...] = ()
