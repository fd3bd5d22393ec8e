"""Base of all training runs: epochs until a stopping condition, checkpoints, best weights and timing."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.engine.config import Schedule
from shunter.engine.job import Checkpointing, Hooks
from shunter.engine.loop.step_clock import StepClock, StepSeconds
from shunter.engine.results import TrainingTimes
from shunter.engine.stopping import StopKind, StopReason
from shunter.errors import RequestError, ShunterError, TrainingError
from shunter.record import Record

# Copying a loss to the host stalls a GPU, so losses are copied every 100 steps only; on a CPU reading is free.
STEPS_BETWEEN_LOSS_CHECKS = {"cpu": 1, "cuda": 100}


class LossWatch:
    """Accumulator that sums the losses of an epoch on the device, and periodically checks that the sums are finite.

    Losses are added step by step, in the order of the steps. The sum therefore does not depend on the checks.
    """

    def __init__(self, device: torch.device, tasks: int = 1) -> None:
        self.period = STEPS_BETWEEN_LOSS_CHECKS[device.type]
        self.totals = torch.zeros(tasks, dtype=torch.float64, device=device)
        self.recent = torch.zeros(self.period, tasks, device=device)
        self.checked_step = 0

    def restart(self, totals: Sequence[float], step: int) -> None:
        """Continue after `step` with the loss sums `totals` (one for each task)."""
        self.totals.copy_(torch.tensor(totals, dtype=torch.float64))
        self.checked_step = step

    def add(self, losses: Tensor, counts: Sequence[float], step: int) -> None:
        """Add the mean losses of a step, each multiplied by its count of samples (or its total weight)."""
        self.recent[step % self.period] = losses
        for total, loss, count in zip(self.totals, losses.view(-1), counts, strict=True):
            total.add_(loss, alpha=count)
        if step - self.checked_step >= self.period:
            self.check(step)

    def check(self, step: int) -> list[float]:
        """Return the loss sums after `step`, one for each task.

        Raises:
            TrainingError: A loss since the last check is not finite; the message names its step.
        """
        totals = self.totals.tolist()
        if not all(map(math.isfinite, totals)):
            recent = [sum(losses) for losses in self.recent.tolist()]
            steps = range(self.checked_step + 1, step + 1)
            first = next((number for number in steps if not math.isfinite(recent[number % self.period])), step)
            raise TrainingError(
                f"The training loss of step {first} is {recent[first % self.period]}: lower the learning "
                "rates. The last good checkpoint is kept."
            )
        self.checked_step = step
        return totals


@dataclass(kw_only=True)
class RunState(Record):
    """State of a training run besides weights, optimizer and random state; each kind of training adds fields."""

    epoch: int = 0
    next_batch: int = 0
    step: int = 0
    samples_seen: int = 0
    epoch_loss: float | list[float] = 0.0  # sum over the epoch; with several tasks a list, one sum for each task
    epoch_samples: int = 0
    train_seconds: float = 0.0
    wait_seconds: float = 0.0
    compute_seconds: float = 0.0
    warm_up_steps: int = 0  # slow first steps of each attempt on a GPU; their seconds count in wait and compute too
    warm_up_seconds: float = 0.0
    best_step: int = -1
    best_epoch: int = 0
    epochs_without_gain: int = 0


Trained = TypeVar("Trained", bound=nn.Module)
State = TypeVar("State", bound=RunState)
Quality = TypeVar("Quality")
Report = TypeVar("Report")


class TrainingRun(ABC, Generic[Trained, State, Quality, Report]):
    """Base class of one training run in progress.

    `run` trains and closes epochs until the schedule or the budget ends training. A subclass defines the
    training step, the measurement of quality and the comparison of qualities. If the budget ends an epoch early, its
    state is saved for resuming, and the unfinished epoch is evaluated too.

    Attributes:
        clock: Clock of the steps of the current pass over the data; None before the first pass.
        may_save: Whether training can resume from the current state: False within a step and after the end of the
            budget.
    """

    def __init__(
        self,
        model: Trained,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        losses: LossWatch,
        state: State,
        *,
        hooks: Hooks,
    ) -> None:
        self.model, self.optimizer, self.schedule, self.losses, self.state = model, optimizer, schedule, losses, state
        self.hooks = hooks
        self.best_weights: dict[str, Tensor] = {}
        self.checkpoint: CheckpointDirectory[Trained] | None = None
        self.clock: StepClock | None = None
        self.may_save = True
        self.counted_until = time.perf_counter()
        self.steps_counted = 0  # steps timed in this attempt

    @property
    def _progress(self) -> dict[str, Any]:
        """Fields that the state shares with reports and results."""
        return {one.name: getattr(self.state, one.name) for one in fields(TrainingTimes)}

    @abstractmethod
    def _read_state(self, values: dict[str, Any]) -> State:
        """Return the state that the JSON values of a checkpoint describe."""

    @abstractmethod
    def _train_epoch(self, raise_if_interrupted: Callable[[], None]) -> StopReason | None:
        """Train until the end of the current epoch; return the reason if a stopping condition ends training earlier."""

    @abstractmethod
    def _validate(self) -> Quality:
        """Measure the quality on the validation part."""

    @abstractmethod
    def _report(self, validation: Quality) -> Report:
        """Return the report of the current epoch."""

    @abstractmethod
    def _enter(self, report: Report) -> bool:
        """Append a report to the history and record the best quality; return True if its quality is the best so far."""

    def resume(self, checkpoint: CheckpointDirectory[Trained], checkpointing: Checkpointing) -> None:
        """Save to `checkpoint` from now on, and resume from its state if there is one."""
        self.checkpoint = checkpoint
        self.every_seconds, self.every_steps = checkpointing.seconds, checkpointing.steps or math.inf
        checkpoint.follow(self.model)
        checkpoint.fetch()
        if checkpoint.exists():
            self.state = self._read_state(checkpoint.read(self.model, self.optimizer))
            loss = self.state.epoch_loss
            self.losses.restart(loss if isinstance(loss, list) else [loss], self.state.step)
        self.saved_at, self.saved_step = time.perf_counter(), self.state.step

    def run(self, raise_if_interrupted: Callable[[], None]) -> StopReason:
        """Train until a stopping condition, restore the best weights, and return the reason."""
        reason = self._finished()
        while reason is None:
            reason = self._train_epoch(raise_if_interrupted)
            if reason is None:
                self._close_epoch()
                reason = self._finished()
            else:  # the state is saved, so that training can resume with a larger budget; then the epoch is evaluated
                self.save()
                self.may_save = False
                report = self._report(self._validate())
                self._note(report)
                if self.hooks.on_epoch:
                    self.hooks.on_epoch(report)
            raise_if_interrupted()
        if self.state.best_step != self.state.step:
            if self.checkpoint is not None:
                self.checkpoint.restore_best(self.model)
            else:
                self.model.load_state_dict(self.best_weights)
        return reason

    def save(self, *, may_skip: bool = False) -> None:
        """Start writing a checkpoint, unless the current state cannot be resumed from.

        Args:
            may_skip: Whether to skip this checkpoint while the previous one is still being written.
        """
        if self.checkpoint is None or not self.may_save:
            return
        first, *others = self.losses.check(self.state.step)
        self.state.epoch_loss = [first, *others] if others else first
        self._count_time()
        self.checkpoint.write(self.model, self.optimizer, asdict(self.state), may_skip=may_skip)
        self.saved_at, self.saved_step = time.perf_counter(), self.state.step

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Save the state of the current step after Ctrl-C in the block; at the end all checkpoints are on disk."""
        try:
            yield
        except KeyboardInterrupt:
            self._finish_saving()
            self.save()
            self._finish_saving()
            raise
        except BaseException:
            with suppress(ShunterError):  # the error of the block is raised instead
                self._finish_saving()
            raise
        self._finish_saving(is_over=True)

    def _finish_saving(self, *, is_over: bool = False) -> None:
        if self.checkpoint is not None:
            self.checkpoint.finish(is_over=is_over)

    def _finished(self) -> StopReason | None:
        if self.state.epochs_without_gain >= self.schedule.patience:
            return StopReason(StopKind.PATIENCE)
        return StopReason(StopKind.MAX_EPOCHS) if self.state.epoch >= self.schedule.max_epochs else None

    def _close_epoch(self) -> None:
        """Evaluate, advance to the next epoch, report and save."""
        validation = self._validate()
        self.may_save = False
        report = self._report(validation)
        self._begin_epoch()
        self._note(report)
        self.may_save = True
        if self.hooks.on_epoch:
            self.hooks.on_epoch(report)
        self.save()

    def _begin_epoch(self) -> None:
        self.state.epoch += 1
        self.state.next_batch = self.state.epoch_samples = 0
        self.losses.restart([0.0] * len(self.losses.totals), self.state.step)

    def _note(self, report: Report) -> None:
        """Append a report to the history, and save the weights if they are the best so far."""
        state = self.state
        state.epochs_without_gain += 1
        if not self._enter(report):
            return
        state.epochs_without_gain = 0
        if self.checkpoint is not None:
            self.checkpoint.keep_best(self.model, state.best_step)
        else:
            self.best_weights = {}  # freed before the copy: old and new weights together would raise the memory peak
            self.best_weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def _reason_to_stop(self) -> StopReason | None:
        """Return the reason to end training before its schedule does; None to continue."""
        return self.hooks.should_stop() if self.hooks.should_stop else None

    def _is_late(self) -> bool:
        """Return True if the last checkpoint is at least `every_seconds` old."""
        return time.perf_counter() - self.saved_at >= self.every_seconds

    def _count_steps(self, *, wait: bool = False) -> None:
        """Add the time of the steps that have ended since the last call; `wait`: wait for all steps to end first."""
        for taken in self.clock.finished(wait=wait) if self.clock else ():
            self.state.wait_seconds += taken.wait
            self.state.compute_seconds += taken.compute
            if self.clock is not None and self.steps_counted < self.clock.warm_up_steps:
                self.state.warm_up_steps += 1
                self.state.warm_up_seconds += taken.wait + taken.compute
            self.steps_counted += 1
            self._follow(taken)

    def _follow(self, taken: StepSeconds) -> None:
        """Process the time of a step; subclasses override this method."""

    def _count_time(self) -> None:
        self._count_steps(wait=True)
        now = time.perf_counter()
        self.state.train_seconds += now - self.counted_until
        self.counted_until = now


def check_schedule(schedule: Schedule) -> None:
    """Raise RequestError for a schedule without an epoch or patience."""
    if schedule.max_epochs < 1 or schedule.patience < 1:
        raise RequestError(
            "A training run needs at least one epoch and a patience of one, but max_epochs is "
            f"{schedule.max_epochs} and patience is {schedule.patience}: raise them."
        )
