"""What a training, an evaluation and a probe report."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Generic, Self

import numpy as np
from typing_extensions import TypeVar

from shunter.engine.checkpoint.keeping import CheckpointFigures
from shunter.engine.metrics import Metrics
from shunter.engine.stopping import StopReason
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.row_traffic import RowTraffic
from shunter.models.registry import Model
from shunter.record import Record
from shunter.statistics.intervals import deciles


@dataclass(frozen=True, kw_only=True)
class EpochReport(Record):
    """Where a training stood after an epoch, or when its budget was used up within one.

    Attributes:
        epoch: passes over the training part so far, from 1; an unfinished pass counts.
        step: optimiser steps so far.
        samples_seen: training samples so far.
        train_logloss: mean loss over the epoch, taken while the weights were changing; with several tasks of the main.
        validation: quality on the validation part.
        train_seconds: wall clock so far, validation and checkpoints included.
        wait_seconds: part of it that the step waited for a batch.
        compute_seconds: part of it that forward, backward and update took.
        warm_up_steps: on a GPU, the first steps of each attempt, which make its kernels ready and record a step.
        warm_up_seconds: part of the two times that these took.
        other_train_loglosses: with several tasks, the same loss of each beside the main one, by name.
        is_check: whether the schedule asked for it within an epoch; `epoch` is then the one that has begun.
        learning_rates: rates that the last step used, for `dense` and `embedding`; empty where they were not noted.
    """

    epoch: int
    step: int
    samples_seen: int
    train_logloss: float
    validation: Metrics
    train_seconds: float
    wait_seconds: float
    compute_seconds: float
    warm_up_steps: int = 0
    warm_up_seconds: float = 0.0
    other_train_loglosses: dict[str, float] = field(default_factory=dict)
    is_check: bool = False
    learning_rates: dict[str, float] = field(default_factory=dict)


Trained = TypeVar("Trained", default=Model)
Quality = TypeVar("Quality", default=Metrics)
Report = TypeVar("Report", default=EpochReport)


@dataclass(frozen=True, kw_only=True)
class TrainingFigures(Generic[Quality, Report]):
    """What a finished training came to, without its weights.

    Attributes:
        history: one report an epoch.
        best_epoch: Epoch of the best weights: of a model of clicks by the validation figure that selects
            (`Schedule.select_by`), of a ranking model with the highest NDCG@20 or recall@20.
        validation: quality of the best epoch's weights on the validation part.
        samples_seen: training samples of all epochs.
        train_seconds: wall clock, validation and checkpoints included, time between interruptions left out.
        wait_seconds: part of it that the step waited for a batch.
        compute_seconds: part of it that forward, backward and update took.
        warm_up_steps: on a GPU, the first steps of each attempt, which make its kernels ready and record a step.
        warm_up_seconds: part of the two times that these took.
        compile_seconds: part of it that compiling the dense part took, in all attempts; 0 when it was not compiled.
        stop_reason: Reason why it ended.
        peak_memory_bytes: most memory used: of the device for a GPU, of the process for a CPU.
        checkpoints: What its checkpoints came to; None where it kept none.
        tiers: What its last attempt moved between memory and the file of its embedding tables; None where these lay in
            memory.
        row_traffic: What its first process asked of the others in its last attempt, where rows of tables travel one by
            one; else None.
    """

    history: tuple[Report, ...]
    best_epoch: int
    validation: Quality
    samples_seen: int
    train_seconds: float
    wait_seconds: float
    compute_seconds: float
    warm_up_steps: int = 0
    warm_up_seconds: float = 0.0
    compile_seconds: float = 0.0
    stop_reason: StopReason
    peak_memory_bytes: int
    checkpoints: CheckpointFigures | None = None
    tiers: CacheCounts | None = None
    row_traffic: RowTraffic | None = None

    @property
    def samples_per_second(self) -> float:
        """Training throughput, validation and checkpoints left out."""
        return self.samples_seen / (self.wait_seconds + self.compute_seconds)


@dataclass(frozen=True, kw_only=True)
class TrainResult(TrainingFigures[Quality, Report], Generic[Trained, Quality, Report]):
    """A finished training, with its model.

    Attributes:
        model: with the weights of the best epoch.
        validation_logits: predictions of these weights on the validation part, float32 as in `Evaluation`; None where
            that is not at hand, for instance after an interruption.
    """

    model: Trained
    validation_logits: np.ndarray | None = None

    @property
    def figures(self) -> TrainingFigures[Quality, Report]:
        """All but the model."""
        return TrainingFigures(**{field.name: getattr(self, field.name) for field in fields(TrainingFigures)})


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Predictions on one split, in the order of its rows.

    Attributes:
        metrics: quality; with several tasks of the main one, and of the others in it.
        labels: float32 `[rows]`, or `[rows, tasks]` where there are several; 0 for one that is missing.
        logits: float32, predicted log odds, likewise.
        weights: float32, likewise: what each label counts, 0 for one that is missing; None: all count alike.
    """

    metrics: Metrics
    labels: np.ndarray
    logits: np.ndarray
    weights: np.ndarray | None = None

    def of_task(self, task: int) -> "tuple[np.ndarray, np.ndarray, np.ndarray | None]":
        """Labels, logits and weights, each `[rows]`, of one task, by its number."""
        if self.labels.ndim == 1:
            return self.labels, self.logits, self.weights
        weights = None if self.weights is None else self.weights[:, task]
        return self.labels[:, task], self.logits[:, task], weights


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    """A short measurement of the real training step.

    Attributes:
        steps: steps measured, after the warm-up.
        step_seconds: median wall clock of a step, waiting for its batch included.
        step_seconds_p10: its 10th percentile.
        step_seconds_p90: its 90th percentile.
        wait_seconds: mean part of a step spent waiting for the batch.
        load_seconds: mean time the background thread took to make a batch.
        compile_seconds: Duration of compiling, before the steps; None when they were not compiled.
        peak_memory_bytes: most memory used: of the device for a GPU, of the process for a CPU.
        eager_step_seconds: Median of steps that were not compiled, taken between compiled ones; None where none were.
    """

    steps: int
    step_seconds: float
    step_seconds_p10: float
    step_seconds_p90: float
    wait_seconds: float
    load_seconds: float
    compile_seconds: float | None
    peak_memory_bytes: int
    eager_step_seconds: float | None = None

    @classmethod
    def of_steps(
        cls,
        step_seconds: Sequence[float] | np.ndarray,
        *,
        wait_seconds: float = 0.0,
        load_seconds: float = 0.0,
        compile_seconds: float | None = None,
        peak_memory_bytes: int,
        eager_step_seconds: float | None = None,
    ) -> Self:
        """Return the timing of steps whose wall clocks are given."""
        p10, median, p90 = deciles(step_seconds)
        return cls(
            steps=len(step_seconds),
            step_seconds=median,
            step_seconds_p10=p10,
            step_seconds_p90=p90,
            wait_seconds=wait_seconds,
            load_seconds=load_seconds,
            compile_seconds=compile_seconds,
            peak_memory_bytes=peak_memory_bytes,
            eager_step_seconds=eager_step_seconds,
        )
