"""Results of a training run, an evaluation and a step probe."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, Self

import numpy as np
from typing_extensions import TypeVar

from shunter.engine.checkpoint.checkpoint_settings import CheckpointFigures
from shunter.engine.metrics import Metrics
from shunter.engine.stopping import StopReason
from shunter.models.embeddings.cache_counts import CacheCounts, RowTraffic
from shunter.record import Record
from shunter.statistics import deciles

if TYPE_CHECKING:
    from shunter.models.registry import Model


@dataclass(frozen=True, kw_only=True)
class TrainingTimes(Record):
    """Samples and times of a training run so far, all attempts included.

    Attributes:
        samples_seen: Training samples of all epochs; of a ranking, the positives.
        train_seconds: Wall-clock seconds, validation and checkpoints included.
        wait_seconds: Part of `train_seconds` in which a step waited for its batch.
        compute_seconds: Part of `train_seconds` of forward, backward and update.
        warm_up_steps: Number of slow first steps of each attempt on a GPU, which load kernels and record a CUDA graph.
        warm_up_seconds: Part of `wait_seconds` and `compute_seconds` of the warm-up steps.
    """

    samples_seen: int
    train_seconds: float
    wait_seconds: float
    compute_seconds: float
    warm_up_steps: int = 0
    warm_up_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class EpochReport(TrainingTimes):
    """State of a training run after an epoch, or when its budget was used up within an epoch.

    Attributes:
        epoch: Passes over the training part so far, from 1; an unfinished pass counts.
        step: Optimizer steps so far.
        train_logloss: Mean loss over the epoch, computed while the weights were changing; with several tasks,
            that of the main task.
        validation: Metrics on the validation part.
        other_train_loglosses: With several tasks, the mean loss of each task besides the main task, by name.
        is_check: Whether this is a check of the schedule within an epoch; `epoch` is then the epoch that has begun.
        learning_rates: Rates of the last step, for `dense` and `embedding`; empty if they were not recorded.
    """

    epoch: int
    step: int
    train_logloss: float
    validation: Metrics
    other_train_loglosses: dict[str, float] = field(default_factory=dict)
    is_check: bool = False
    learning_rates: dict[str, float] = field(default_factory=dict)


Trained = TypeVar("Trained", default="Model")
Quality = TypeVar("Quality", default=Metrics)
Report = TypeVar("Report", default=EpochReport)


@dataclass(frozen=True, kw_only=True)
class TrainingFigures(TrainingTimes, Generic[Quality, Report]):
    """Figures of a finished training run, without its weights.

    Attributes:
        history: One report for each epoch.
        best_epoch: Epoch of the best weights: of a click model by the validation figure `Schedule.select_by`, of a
            ranking model by the highest NDCG@20 or recall@20.
        validation: Metrics of the best epoch's weights on the validation part.
        compile_seconds: Part of `train_seconds` of compiling the dense part, in all attempts; 0 if it was not compiled.
        stop_reason: Reason why training ended.
        peak_memory_bytes: Peak memory: of the device for a GPU, of the process for a CPU.
        checkpoints: Cost of the checkpoints; None if there were none.
        tiers: Traffic of the last attempt between memory and the file of its embedding tables; None if the tables were
            in memory.
        row_traffic: Rows that the first process requested from other processes in the last attempt, if table rows are
            exchanged one by one; otherwise None.
    """

    history: tuple[Report, ...]
    best_epoch: int
    validation: Quality
    compile_seconds: float = 0.0
    stop_reason: StopReason
    peak_memory_bytes: int
    checkpoints: CheckpointFigures | None = None
    tiers: CacheCounts | None = None
    row_traffic: RowTraffic | None = None

    @property
    def samples_per_second(self) -> float:
        """Training throughput in samples per second, without validation and checkpoints."""
        return self.samples_seen / (self.wait_seconds + self.compute_seconds)


@dataclass(frozen=True, kw_only=True)
class TrainResult(TrainingFigures[Quality, Report], Generic[Trained, Quality, Report]):
    """Result of a finished training run, with its model.

    Attributes:
        model: Model with the weights of the best epoch.
        validation_logits: Predictions of these weights on the validation part, float32 as in `Evaluation`; None if they
            are not available, for instance after an interruption.
    """

    model: Trained
    validation_logits: np.ndarray | None = None

    @property
    def figures(self) -> TrainingFigures[Quality, Report]:
        """Metrics and times of the training run, without the model."""
        return TrainingFigures(**{field.name: getattr(self, field.name) for field in fields(TrainingFigures)})


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Predictions on one split, in the order of its rows.

    Attributes:
        metrics: Metrics of the main task, which contain those of further tasks.
        labels: float32 `[rows]`, or `[rows, tasks]` with several tasks; 0 for a missing label.
        logits: float32, predicted log odds, of the same shape.
        weights: float32, of the same shape: weight of each label, 0 for a missing label; None: all weights are equal.
    """

    metrics: Metrics
    labels: np.ndarray
    logits: np.ndarray
    weights: np.ndarray | None = None

    def of_task(self, task: int) -> "tuple[np.ndarray, np.ndarray, np.ndarray | None]":
        """Return labels, logits and weights, each `[rows]`, of the task with this number."""
        if self.labels.ndim == 1:
            return self.labels, self.logits, self.weights
        weights = None if self.weights is None else self.weights[:, task]
        return self.labels[:, task], self.logits[:, task], weights


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    """Short measurement of the real training step.

    Attributes:
        steps: Measured steps, after the warm-up.
        step_seconds: Median wall-clock seconds of a step, including the wait for its batch.
        step_seconds_p10: 10th percentile of the seconds of a step.
        step_seconds_p90: 90th percentile of the seconds of a step.
        wait_seconds: Mean wait of a step for its batch.
        load_seconds: Mean time of the background thread to make a batch.
        compile_seconds: Time of compiling, before the steps; None if the steps were not compiled.
        peak_memory_bytes: Peak memory: of the device for a GPU, of the process for a CPU.
        eager_step_seconds: Median of uncompiled steps, taken between compiled steps; None if there were none.
    """

    steps: int
    step_seconds: float
    step_seconds_p10: float
    step_seconds_p90: float
    wait_seconds: float = 0.0
    load_seconds: float = 0.0
    compile_seconds: float | None = None
    peak_memory_bytes: int
    eager_step_seconds: float | None = None

    @classmethod
    def of_steps(cls, taken: Sequence[float] | np.ndarray, **others: Any) -> Self:
        """Compute median and percentiles from the seconds of each step; the other fields are passed on."""
        p10, median, p90 = deciles(taken)
        return cls(steps=len(taken), step_seconds=median, step_seconds_p10=p10, step_seconds_p90=p90, **others)
