"""Training of click models: epochs with early stopping, and a state that can be resumed from any step."""

import contextlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch

from shunter.engine.checkpoint.checked_files import snapshot_folder
from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.engine.checkpoint.storage import save_model
from shunter.engine.config import Hyperparameters, LearningRateSchedule, Schedule
from shunter.engine.data.batch import Batch
from shunter.engine.data.loader import training_numbers
from shunter.engine.data.pipeline import ReadAhead
from shunter.engine.data.vectors import load_pretrained_vectors
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.loop.interrupt import deferred_interrupt
from shunter.engine.loop.loss import group_field, load_loss, task_weights
from shunter.engine.loop.optimizers import LearningRates
from shunter.engine.loop.processes import OneProcess
from shunter.engine.loop.step import (
    admitted_batches,
    applied,
    build_dense_optimizer,
    peak_memory_bytes,
    prefetch,
    reset_peak_memory,
    seeded,
    trained,
)
from shunter.engine.loop.step_clock import StepSeconds, step_clock
from shunter.engine.loop.step_options import prepare_layers, restore_layers
from shunter.engine.loop.training_run import LossWatch, RunState, TrainingRun, check_schedule
from shunter.engine.metrics import Metrics
from shunter.engine.number_losses import number_loss
from shunter.engine.results import EpochReport, TrainResult
from shunter.engine.stopping import StopReason
from shunter.engine.table_files import embedding_cache
from shunter.errors import DataError, RequestError, TrainingError
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.number_bins import begin_bins
from shunter.models.registry import Model


def train(
    job: ClickJob,
    hooks: Hooks = Hooks(),
    checkpointing: Checkpointing | None = None,
    *,
    processes: OneProcess | None = None,
) -> TrainResult:
    """Train one model until its schedule or budget ends, or resume it from its checkpoint.

    An interrupted training run that is called again with the same job ends with bitwise the same weights as an
    uninterrupted run. This holds on the same machine with the same number of threads, and on a GPU too
    (`shunter.engine.loop.step`). Training stops after `max_epochs`, after `patience` epochs without a better validation
    figure (`Schedule.select_by`), or when `should_stop` returns a reason. Then the weights of the best epoch are
    restored. If the budget ends training within an epoch, the unfinished epoch is evaluated too.

    Args:
        job: Training job.
        hooks: Functions that are called during training.
        checkpointing: Folder and frequency of its checkpoints. None keeps the state in memory only; tables that are
            stored in a file then use a temporary folder next to the data until training ends.
        processes: Processes that share this training run; each process calls this function. None: this process only.

    Raises:
        RequestError: The model cannot be built or does not fit into memory, the batch is larger than the data, the
            schedule has no epoch, or the embedding cache is too small.
        DataError: An array cannot be read, or the validation part has one class only.
        TrainingError: The loss is not finite; the last good checkpoint is kept.
        CheckpointError: The checkpoint is damaged or belongs to another training run.
        HardwareError: The device cannot be used, or the disk has too little space for the embedding file.
        KeyboardInterrupt: Ctrl-C; the state after the current step has been saved.
    """
    _check(job)
    job = replace(job, schedule=replace(job.schedule, max_epochs=job.hyperparameters.most_epochs(job.schedule)))
    _check_checks(job.schedule, processes)
    cache = embedding_cache(job.execution, job.spec, job.dataset)
    _check_cycles(job, processes, cache)
    with contextlib.ExitStack() as until_the_end:
        if cache is not None:  # neither the tables nor their best version need to fit into memory
            if checkpointing is None:
                beside = job.dataset.directory if os.access(job.dataset.directory, os.W_OK) else None
                folder = TemporaryDirectory(prefix="training-", dir=beside)
                checkpointing = Checkpointing(Path(until_the_end.enter_context(folder)), seconds=math.inf)
            cache = replace(cache, directory=checkpointing.directory)
        processes, checkpoint = processes or OneProcess(), None
        if checkpointing is not None:
            checkpoint = processes.checkpoint(
                checkpointing.directory, _identity(job), checkpointing.checkpoint_settings
            )
        with applied(job.execution) as device, seeded(processes.random_seed(job.schedule.seed), device):
            reset_peak_memory(device)
            run = _Run(job, hooks, processes=processes, cache=cache)
            if job.warm_start is not None:
                job.warm_start.apply(run.model)
            if checkpoint is not None and checkpointing is not None:
                run.resume(checkpoint, checkpointing)
            with deferred_interrupt() as raise_if_interrupted, run.saved():
                stop_reason = run.run(raise_if_interrupted)
            return run.result(stop_reason, peak_memory_bytes(device))


def _check(job: ClickJob) -> None:
    dataset, execution, schedule = job.dataset, job.execution, job.schedule
    _check_rates(job.hyperparameters)
    check_schedule(schedule)
    rows = dataset.splits["train"].rows
    if execution.batch_size > rows:
        raise RequestError(
            f"The batch size {execution.batch_size} is larger than the {rows} rows of the training part: "
            "lower the batch size."
        )
    validation = dataset.splits["validation"]
    if dataset.features.number is None and validation.positives in (0, validation.rows):
        raise DataError(
            f"All labels in the validation part of {dataset.name!r} are equal, so quality cannot be "
            "measured: give more rows, or another split."
        )


def _check_rates(rates: Hyperparameters) -> None:
    known = get_args(LearningRateSchedule)
    if rates.learning_rate_schedule not in known:
        raise RequestError(
            f"Unknown learning_rate_schedule {rates.learning_rate_schedule!r}: use one of {', '.join(known)}."
        )
    if not 0 < rates.plateau_factor < 1:
        raise RequestError(
            f"The learning rate factor plateau_factor is {rates.plateau_factor:g}: give a number above 0 and below 1."
        )
    if not 0 <= rates.warmup_epochs < math.inf:
        raise RequestError(f"The number of warm-up epochs, warmup_epochs, is {rates.warmup_epochs:g}: give 0 or more.")
    if rates.cosine_epochs is not None and rates.cosine_epochs < 1:
        raise RequestError(
            f"The number of epochs of the cosine schedule, cosine_epochs, is {rates.cosine_epochs}: give 1 or more."
        )


def _check_cycles(job: ClickJob, processes: OneProcess | None, cache: EmbeddingCache | None) -> None:
    rates, epochs = job.hyperparameters, job.schedule.max_epochs
    if rates.cycles == 1:
        return
    if rates.learning_rate_schedule != "cosine" or not 1 <= rates.cycles <= epochs or epochs % rates.cycles:
        raise RequestError(
            f"{rates.cycles} cycles of the learning rate do not fit {epochs} epochs of the schedule "
            f"{rates.learning_rate_schedule}: set learning_rate_schedule=cosine, and cycles that divide the epochs."
        )
    if processes is not None or cache is not None:
        raise RequestError(
            "Snapshots are not supported for embedding tables that are sharded over processes or stored in "
            "a file: leave out cycles."
        )


def _check_checks(schedule: Schedule, processes: OneProcess | None) -> None:
    if not schedule.checks:
        return
    if any(not passes > 0 for passes in schedule.checks):
        raise RequestError(f"The epochs at which the schedule validates, {schedule.checks}, must all be above 0.")
    if processes is not None:
        raise RequestError(
            "A model whose embedding tables are sharded over several processes can be validated only after "
            "whole epochs: leave `checks` of the schedule empty."
        )


@dataclass(kw_only=True)
class _State(RunState):
    """State of a training run of a click model."""

    epoch_weights: list[float] = field(default_factory=list)
    compile_seconds: float = 0.0
    plateaus: int = 0
    best_loss: float = math.inf
    history: list[EpochReport] = field(default_factory=list)


class _Run(TrainingRun[Model, _State, Metrics, EpochReport]):
    """Training run of a click model."""

    def __init__(self, job: ClickJob, hooks: Hooks, *, processes: OneProcess, cache: EmbeddingCache | None) -> None:
        self.dataset, self.execution, self.processes = job.dataset, job.execution, processes
        dataset, execution, schedule = job.dataset, job.execution, job.schedule
        model: Model = processes.build_model(
            job.spec, dataset.features, job.hyperparameters, execution, seed=schedule.seed, cache=cache
        ).train()
        load_pretrained_vectors(model.embeddings, job.spec, dataset)
        if job.spec.numeric_bins:
            begin_bins(model.layers, training_numbers(dataset))
        prepare_layers(model, execution)
        number = dataset.features.number
        model.loss = load_loss(job.hyperparameters.loss) if number is None else number_loss(number)
        self.device = torch.device(execution.device)
        losses = LossWatch(self.device, dataset.features.outputs)
        optimizer = build_dense_optimizer(model, job.hyperparameters)
        super().__init__(model, optimizer, schedule, losses, _State(), hooks=hooks)
        groups = group_field(job.hyperparameters.loss, dataset)
        self.loader = processes.loader(dataset, execution.batch_size, schedule.seed, groups)
        self.read_ahead = ReadAhead(self.loader.read, depth=execution.prefetch_depth, fixed_depth=cache is not None)
        self.tasks = dataset.features.tasks
        self.task_weights = task_weights(job.hyperparameters.task_weights, self.tasks, execution.device)
        self.rates = LearningRates(
            job.hyperparameters,
            optimizer,
            model.embeddings,
            epoch_steps=len(self.loader),
            max_epochs=schedule.max_epochs,
        )
        cycles = job.hyperparameters.cycles
        self.epochs_of_cycle = schedule.max_epochs // cycles if cycles > 1 else None
        self.rates_vary = not job.hyperparameters.has_constant_rates
        self.check_steps = {round(passes * len(self.loader)) for passes in schedule.checks}
        if groups is None:  # a recorded step cannot use groups
            self.processes.record_steps(model, optimizer, execution)
        if execution.compiled and groups is None:
            batch, vary = self.loader.read(next(iter(self.loader.rows_of_batches()))), self.rates_vary
            taken = processes.compile(model, optimizer, execution, batch, self.task_weights, rates_vary=vary)
            self.state.compile_seconds = taken or 0.0
        self.counted_until = time.perf_counter() - self.state.compile_seconds
        self.logits = self.best_logits = None  # validation logits of the last and of the best weights

    @property
    def _scores_as_loaded(self) -> bool:
        """Return True if `best_logits` are exactly what the model predicts after it has been saved and loaded."""
        asked, is_in_memory = self.execution, self.checkpoint is None or self.state.best_step == self.state.step
        return is_in_memory and not (asked.compiled or asked.rewriting or asked.compacts_dead_units)

    def resume(self, checkpoint: CheckpointDirectory[Model], checkpointing: Checkpointing) -> None:
        """Save to `checkpoint` and resume from its state if there is one; compile time adds up over attempts."""
        compile_seconds = self.state.compile_seconds
        is_continued = checkpoint.exists()
        super().resume(checkpoint, checkpointing)
        if is_continued:
            self.state.compile_seconds += compile_seconds

    def result(self, stop_reason: StopReason, memory_bytes: int) -> TrainResult:
        """Return the result of the training run; the model is in evaluation mode."""
        state = self.state
        self.model.compiled_step = None  # frees the optimizer's memory, and on a GPU that of a recorded step
        restore_layers(self.model, self.execution)
        return TrainResult(
            model=self.model.eval(),
            history=tuple(state.history),
            best_epoch=state.best_epoch,
            validation=next(report.validation for report in state.history if report.step == state.best_step),
            **self._progress,
            compile_seconds=state.compile_seconds,
            stop_reason=stop_reason,
            peak_memory_bytes=memory_bytes,
            validation_logits=self.best_logits if self._scores_as_loaded else None,
            checkpoints=self.checkpoint.figures if self.checkpoint is not None else None,
            tiers=self.model.embeddings.cache_counts,
            row_traffic=self.model.embeddings.row_traffic,
        )

    def _read_state(self, values: dict[str, Any]) -> _State:
        if "best_ne" in values:  # name of the field in old checkpoints, when NE was the only selection metric
            values = {**values, "best_loss": values["best_ne"]}
            del values["best_ne"]
        return _State.from_dict(values)

    def _train_epoch(self, raise_if_interrupted: Callable[[], None]) -> StopReason | None:
        """Train until the end of the current epoch; return the reason if a stopping condition ends training earlier."""
        state = self.state
        total_steps = self.schedule.max_epochs * len(self.loader)
        rows = self.loader.rows_of_batches(epoch=state.epoch, start_batch=state.next_batch)
        source = admitted_batches(self.read_ahead.items(rows), self.model)
        ahead = replace(self.execution, prefetch_depth=self.read_ahead.plan.depth)
        with prefetch(source, ahead) as batches, trained(self.model):
            self.read_ahead.follow(batches)
            self.clock = step_clock(self.device, lambda: batches.wait_seconds)
            for batch in self.processes.ahead(batches, self.model):
                with self.clock.step():
                    self._train_batch(batch)
                self._count_steps()
                if self.hooks.on_step:
                    self.hooks.on_step(state.step, total_steps)
                raise_if_interrupted()
                if state.step in self.check_steps and state.next_batch < len(self.loader):
                    report = replace(self._report(self._validate()), is_check=True)  # the state does not change
                    if self.hooks.on_epoch:
                        self.hooks.on_epoch(report)
                    self.clock.resume_after_pause()
                is_full = self.checkpoint is not None and state.step - self.saved_step >= self.every_steps
                if is_full or (self.checkpoint is not None and self.processes.agree(self._is_late())):
                    self.save(may_skip=True)
                    self.clock.resume_after_pause()
                reason = self._reason_to_stop()
                if reason is not None:
                    return reason
        return None

    def _train_batch(self, batch: Batch) -> None:
        """Train on one batch; after an exception within the step the weights are not a valid state to save."""
        state = self.state
        self.may_save = False
        self.rates.apply(state.step, state.plateaus)
        self.model.embeddings.set_step(state.step)
        if self.checkpoint is not None:
            self.checkpoint.record_rows(batch.values, batch.offsets)
        losses = self.processes.step(self.model, self.optimizer, batch, self.execution.precision, self.task_weights)
        state.step += 1
        state.next_batch += 1
        state.samples_seen += batch.samples
        state.epoch_samples += batch.samples
        if batch.totals is not None:
            state.epoch_weights = [a + b for a, b in zip_longest(state.epoch_weights, batch.totals, fillvalue=0.0)]
        self.losses.add(losses, batch.totals or [batch.samples], state.step)
        self.may_save = True

    def _follow(self, taken: StepSeconds) -> None:
        if self.hooks.adapt:
            threads = self.hooks.adapt(taken.wait + taken.compute)
            if threads != torch.get_num_threads():
                torch.set_num_threads(threads)

    def _close_epoch(self) -> None:
        """Close the epoch; the snapshot of a learning rate cycle is saved before the next checkpoint."""
        done, of_cycle = self.state.epoch + 1, self.epochs_of_cycle
        if of_cycle is not None and self.checkpoint is not None and done % of_cycle == 0:
            save_model(self.model, snapshot_folder(self.checkpoint.directory, done))
        super()._close_epoch()

    def _begin_epoch(self) -> None:
        super()._begin_epoch()
        self.state.epoch_weights = []

    def _validate(self) -> Metrics:
        self.losses.check(self.state.step)
        evaluation = self.processes.evaluate(self.model, self.dataset, "validation", self.execution)
        self.logits, metrics = evaluation.logits, evaluation.metrics
        if not math.isfinite(metrics.ne):
            raise TrainingError(
                f"The validation loss after step {self.state.step} is {metrics.logloss}: lower the "
                "learning rates. The last good checkpoint is kept."
            )
        return metrics

    def _report(self, validation: Metrics) -> EpochReport:
        state = self.state
        self._count_time()
        first, *others = (
            total / count if count else math.nan
            for total, count in zip(
                self.losses.check(state.step), state.epoch_weights or [state.epoch_samples], strict=True
            )
        )
        return EpochReport(
            epoch=state.epoch + 1,
            step=state.step,
            train_logloss=first,
            validation=validation,
            **self._progress,
            other_train_loglosses=dict(zip(self.tasks[1:], others, strict=True)),
            learning_rates=self.rates.of(max(state.step - 1, 0), state.plateaus),
        )

    def _enter(self, report: EpochReport) -> bool:
        state = self.state
        state.history.append(report)
        loss = report.validation.loss_by(self.schedule.select_by)
        is_best = loss < state.best_loss
        if is_best:
            state.best_loss, state.best_epoch, state.best_step = loss, report.epoch, report.step
            self.best_logits = self.logits
        else:
            state.plateaus += 1
        return is_best


def _identity(job: ClickJob) -> dict[str, Any]:
    """Return the settings that must be equal for a checkpoint to belong to the same training run."""
    return {
        "data fingerprint": job.dataset.fingerprint,
        "features": job.dataset.features.to_dict(),
        "architecture": job.spec.to_dict(),
        "hyperparameters": job.hyperparameters.to_dict(),
        "batch size": job.execution.batch_size,
        "precision": job.execution.precision,
        "compiled": job.execution.compiled,
        "seed": job.schedule.seed,
        "rewriting": list(job.execution.rewriting) or None,
        "compacts dead units": job.execution.compacts_dead_units or None,
        "selected by": job.schedule.select_by if job.schedule.select_by != "ne" else None,
        # With a cosine schedule the number of epochs determines the learning rates; otherwise only the end of training.
        "max epochs": job.schedule.max_epochs if job.hyperparameters.learning_rate_schedule == "cosine" else None,
        "warm start": job.warm_start.identity if job.warm_start is not None else None,
    }
