"""Hyperparameters of a graph model's training, and its reports."""

from dataclasses import dataclass, field
from typing import ClassVar

from shunter.engine.ranking.evaluation import RankingMetrics
from shunter.engine.results import TrainingTimes
from shunter.models.graph.spec import Range, Searched
from shunter.record import OPTIONAL, Record


@dataclass(frozen=True, kw_only=True)
class RankingHyperparameters(Record):
    """Training hyperparameters of a graph model, besides the architecture.

    The defaults are the best of a few short training runs of LightGCN on a tenth and on two fifths of MovieLens-1M's
    users. They were selected on a validation part of the training part, with at least 25 batches in an epoch
    (`shunter.planner.candidates.placements`).

    Attributes:
        learning_rate: Step size of Adam.
        weight_decay: Weight of the L2 loss: half the squared embeddings of a sample's user, positive and negatives,
            before propagation.
        negatives: Number of negatives sampled for each positive.
        batch_scale: Batch size as a multiple of the placement's batch size.
        searched: Values of each hyperparameter that a search tries.
    """

    searched: ClassVar[Searched] = {
        "learning_rate": Range(0.003, 0.1),
        "weight_decay": Range(1e-5, 1e-2),
        "negatives": (1, 4, 8),
        "batch_scale": (1, 2),
    }

    learning_rate: float = 0.03
    weight_decay: float = 1e-3
    negatives: int = 4
    batch_scale: int = field(default=1, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class RankingReport(TrainingTimes):
    """Progress of a training run after an epoch, or at the end of its budget within an epoch.

    Attributes:
        epoch: Number of passes over the edges so far, from 1; an unfinished pass counts.
        step: Number of optimizer steps so far.
        train_loss: Mean of the losses of the epoch's steps, without weight decay; None for a model that is solved in
            closed form.
        validation: Quality on the validation part.
    """

    epoch: int
    step: int
    train_loss: float | None
    validation: RankingMetrics
