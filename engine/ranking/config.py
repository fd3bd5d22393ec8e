"""Hyperparameters of a graph model's training, and its reports."""

from dataclasses import dataclass, field
from typing import ClassVar

from shunter.engine.ranking.evaluation import RankingMetrics
from shunter.engine.results import TrainResult
from shunter.models.graph.model import GraphModel
from shunter.models.graph.ranker import Ranker
from shunter.models.graph.spec import Range, Searched
from shunter.record import OPTIONAL, Record


@dataclass(frozen=True, kw_only=True)
class RankingHyperparameters(Record):
    """Hyperparameters of training, besides the architecture.

    The defaults are the best of a few short training runs of LightGCN on a tenth and on two fifths of MovieLens-1M's
    users. They were selected on a validation part of the training part, with at least 25 batches in an epoch
    (`shunter.planner.candidates.placements`).

    Attributes:
        learning_rate: Step size of Adam.
        weight_decay: weight of half the squared embeddings of a sample (user, positive and negatives) in its loss; only
            their own embeddings, without propagation.
        negatives: number of negatives drawn for each positive.
        batch_scale: batch size as a multiple of the placement's batch size.
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
class RankingReport(Record):
    """Progress of a training run after an epoch, or at the end of its budget within an epoch.

    Attributes:
        epoch: passes over the edges so far, from 1; an unfinished pass counts.
        step: optimiser steps so far.
        samples_seen: positives so far.
        train_loss: mean loss over the epoch while the weights change, without weight decay; None for a model in closed
            form.
        validation: quality on the validation part.
        train_seconds: wall clock so far, validation and checkpoints included.
        wait_seconds: part of it that drawing the batches took.
        compute_seconds: part of it that forward, backward and update took.
        warm_up_steps: on a GPU, the first steps of each attempt, which make its kernels ready.
        warm_up_seconds: part of the two times that these took.
    """

    epoch: int
    step: int
    samples_seen: int
    train_loss: float | None
    validation: RankingMetrics
    train_seconds: float
    wait_seconds: float
    compute_seconds: float
    warm_up_steps: int = 0
    warm_up_seconds: float = 0.0


RankingResult = TrainResult[GraphModel, RankingMetrics, RankingReport]
SolvedResult = TrainResult[Ranker, RankingMetrics, RankingReport]
