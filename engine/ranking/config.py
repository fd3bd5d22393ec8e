"""What a graph model is learned with, and what a training reports."""

from dataclasses import asdict, dataclass
from typing import Any

from engine.ranking.evaluation import RankingMetrics
from models.graph.ranker import Ranker
from models.graph.spec import GraphSpec


@dataclass(frozen=True, kw_only=True)
class RankingHyperparameters:
    """What is learned with, beside the architecture.

    Attributes:
        learning_rate: of Adam.
        weight_decay: share of half the squared embeddings of a sample (user, positive and negatives) that is added to
            its loss; only their own, not what came along the edges.
        negatives: drawn for each positive.
    """

    learning_rate: float = 0.01
    weight_decay: float = 1e-3
    negatives: int = 4

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RankingReport:
    """Where a training stood after an epoch, or when its budget was used up within one.

    Attributes:
        epoch: passes over the edges so far, from 1; an unfinished pass counts.
        step: optimiser steps so far.
        samples_seen: positives so far.
        train_loss: mean loss over the epoch, weight decay left out, taken while the weights were changing.
        validation: quality on the validation part.
        train_seconds: wall clock so far, validation and checkpoints included.
        wait_seconds: part of it that drawing the batches took.
        compute_seconds: part of it that forward, backward and update took.
    """

    epoch: int
    step: int
    samples_seen: int
    train_loss: float
    validation: RankingMetrics
    train_seconds: float
    wait_seconds: float
    compute_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RankingReport":
        """Inverse of `to_dict`."""
        return cls(**{**values, "validation": RankingMetrics(**values["validation"])})


@dataclass(frozen=True, kw_only=True)
class RankingResult:
    """A finished training.

    Attributes:
        ranker: with the weights of the best epoch.
        spec: the architecture.
        history: one report an epoch.
        best_epoch: the epoch with the highest NDCG@20 on validation.
        validation: quality of `ranker` on the validation part.
        parameters: learned numbers.
        samples_seen: positives of all epochs.
        train_seconds: wall clock, validation and checkpoints included, time between interruptions left out.
        wait_seconds: part of it that drawing the batches took.
        compute_seconds: part of it that forward, backward and update took.
        stopped_because: `max_epochs`, `patience` or `budget: ...`.
        peak_memory_bytes: most memory used: of the device for a GPU, of the process for a CPU.
    """

    ranker: Ranker
    spec: GraphSpec
    history: tuple[RankingReport, ...]
    best_epoch: int
    validation: RankingMetrics
    parameters: int
    samples_seen: int
    train_seconds: float
    wait_seconds: float
    compute_seconds: float
    stopped_because: str
    peak_memory_bytes: int

    @property
    def compile_seconds(self) -> float:
        """Nothing of a graph model is compiled."""
        return 0.0

    @property
    def samples_per_second(self) -> float:
        """Training throughput, validation and checkpoints left out."""
        return self.samples_seen / (self.wait_seconds + self.compute_seconds)
