"""Loop of a search, which trains the proposed points in parallel slots until the budget ends or no point is left."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shunter.engine.executors.role import ComputeTarget, Executor
from shunter.engine.executors.this_machine import ThisMachine
from shunter.engine.loop.interrupt import RECEIVED
from shunter.engine.metrics import SelectBy, figure_name, figure_of
from shunter.engine.results import EpochReport
from shunter.engine.stopping import ShouldStop, StopKind, StopReason
from shunter.errors import ProcessLostError
from shunter.hardware.types import Placement
from shunter.search.minutes import BudgetMeter
from shunter.search.protocol import Outcome, Parameters, SearchMethod
from shunter.search.study.interrupted import try_again
from shunter.search.study.pair import Pairing, Repeated
from shunter.search.study.storage import (
    begun_trials,
    finished_trials,
    has_waiting,
    lowest_loss,
    outcome_of,
    record,
    tell,
    trials_with_result,
)
from shunter.search.study.trial import TrialContext, TrialEnd, run_trial

if TYPE_CHECKING:
    from optuna import Study, Trial

log = logging.getLogger(__name__)
EPOCH_SECONDS = 3.0  # shortest time between two progress reports within trials; each report is a request to Prefect


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a search after a trial, or after an epoch of a trial.

    Attributes:
        done: Number of finished trials.
        trials: Requested number of trials; None if only time or energy ends the search.
        best_loss: Lowest validation loss so far, by the selection metric; None before the first validation.
        select_by: Selection metric.
        share: Used share of the trials, the time or the energy, whichever is largest; from 0 to 1.
        last: Outcome of the trial, as text; empty after an epoch of a running trial.
        running: Latest epoch of a running trial, as text; empty after a trial.
        is_number: Whether the data set has a numeric label, as opposed to clicks.
    """

    done: int
    trials: int | None
    best_loss: float | None
    select_by: SelectBy
    share: float
    last: str = ""
    running: str = ""
    is_number: bool = False

    @property
    def best(self) -> str | None:
        """Best validation result so far, as text."""
        if self.best_loss is None:
            return None
        figure = figure_name(self.select_by, is_number=self.is_number)
        return f"{figure} {figure_of(self.best_loss, self.select_by):.4f}"


class Loop:
    """Loop that gets points from the search method, trains them in slots, and ends the search.

    If the search must be repeatable, several slots train in rounds. All points of a round are proposed before the first
    of them is trained. A trial is then compared only with the trials of earlier rounds, so that the speed of the trials
    does not matter. Otherwise each slot trains the next point as soon as the slot is free.

    Args:
        study: Study with the trials.
        budget: Time and energy limits of the search, separate from the limits of the run.
        trials: Budget in trials; None: no limit.
        should_stop: Called after each step; a returned reason ends the search.
        on_trial: Called after each trial.
        on_epoch: Called after an epoch of a running trial, at most every `EPOCH_SECONDS`.
        seeds: Number of training runs of the best setting with other seeds after the search. For each run, as much time
            is reserved as the best trial took.
        pairing: Placement that one extra trial explores; None: no exploration.
        in_rounds: Whether several slots train in rounds.
    """

    def __init__(
        self,
        study: "Study",
        budget: BudgetMeter,
        trials: int | None,
        *,
        should_stop: ShouldStop,
        on_trial: Callable[[Progress], None] | None,
        on_epoch: Callable[[Progress], None] | None = None,
        seeds: int = 0,
        pairing: Pairing | None = None,
        in_rounds: bool = True,
    ) -> None:
        self.study, self.budget, self.trials, self.pairing = study, budget, trials, pairing
        self._in_rounds = in_rounds
        self.stop_reason: StopReason | None = None
        self.resumed = len(finished_trials(study))
        self._should_stop, self._on_trial, self._seeds = should_stop, on_trial, seeds
        self._told: set[int] = set()
        self._gave_up = threading.Event()
        self._on_epoch, self._shown_at = on_epoch, -math.inf

    def run(self, method: SearchMethod, context: TrialContext, slots: Sequence[Executor]) -> None:
        """Train the points that a method proposes, in all slots, until the search ends.

        A single slot runs in the calling thread, so that Ctrl-C works between steps.
        """
        self.method, self.context, self._at_a_time = method, context, len(slots)
        self._reserve()
        if len(slots) == 1:
            while (begun := self._begin()) is not None:
                self._note(begun[0], self._trained(*begun, slots[0]))
            return
        with ThreadPoolExecutor(len(slots), thread_name_prefix="trial") as threads:
            try:
                self._in_parallel(slots, threads)
            except BaseException:
                self._gave_up.set()
                for slot in slots:
                    slot.close()
                raise

    def _in_parallel(self, slots: Sequence[Executor], threads: ThreadPoolExecutor) -> None:
        """Train in all slots: round by round, or each slot independently."""
        free, running = list(slots), dict["Future[TrialEnd | None]", tuple["Trial", Executor]]()
        while True:
            if not (self._in_rounds and running):
                begun = list[tuple["Trial", Parameters]]()
                while len(begun) < len(free) and (one := self._begin()) is not None:
                    begun.append(one)
                is_round = self._in_rounds and len(begun) > 1
                peers = frozenset(trial.number for trial, _ in begun) if is_round else frozenset[int]()
                for one in begun:
                    slot = free.pop(0)
                    running[threads.submit(self._trained, *one, slot, peers)] = (one[0], slot)
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_EXCEPTION if self._in_rounds else FIRST_COMPLETED)
            for future in sorted(done, key=lambda one: running[one][0].number):
                trial, slot = running.pop(future)
                free.append(slot)
                self._note(trial, future.result())

    def ended(self) -> StopReason | None:
        """Return the reason to end the search and its running trials; None while the search may continue."""
        if self._gave_up.is_set() or RECEIVED.is_end_requested():
            raise KeyboardInterrupt
        return self._should_stop() or self.budget.exhausted()

    def _trained(
        self, trial: "Trial", parameters: Parameters, slot: Executor, peers: frozenset[int] = frozenset()
    ) -> "TrialEnd | None":
        """Train a point, in the slot or at the placement to explore; return None if its process was killed."""
        context = replace(self.context, peers=peers, on_epoch=self._show_epoch if self._on_epoch else None)
        try:
            if self.pairing is None:
                return run_trial(trial, parameters, context, slot)
            repeated = Repeated.of(trial)
            by_number = {one.number: one for one in self.study.get_trials(deepcopy=False)}
            limit = self.pairing.limit(self.budget.minutes.clock, by_number[repeated.number] if repeated else None)
            context = replace(context, repeated=repeated, exploration=limit)
            if repeated is None:
                return run_trial(trial, parameters, context, slot)
            with self.pairing.executor() as elsewhere:
                return run_trial(trial, parameters, context, elsewhere)
        except ProcessLostError as error:
            log.warning("Trial %d begins anew: %s", trial.number, error)
            return None

    def _note(self, trial: "Trial", end: "TrialEnd | None") -> None:
        """Record the end of a trial; a trial without an end is queued again."""
        if end is None:
            try_again(self.study, trial)
            return
        end.keep()
        tell(self.study, trial, end.outcome, self.context.cost)
        self._report_to_method()
        self._reserve()
        self.budget.save()
        is_number = self.context.dataset.features.number is not None
        last = as_text(trial.number, end.outcome, self.context.schedule.select_by, is_number=is_number)
        self._report(self._on_trial, last=last)

    def _begin(self) -> "tuple[Trial, Parameters] | None":
        """Return the next trial and its point; None if the search has ended."""
        if self._all_begun():
            return self._pair() if self.ended() is None else None
        because = self.ended()
        if because is None:
            self._report_to_method()
            begun = self._next()
            if begun is not None:
                return begun
            because = self.ended() or StopReason(StopKind.EXHAUSTED)
        self.stop_reason = self.stop_reason or because
        return None

    def _next(self) -> "tuple[Trial, Parameters] | None":
        if self.trials is None and (pair := self._pair()) is not None:
            return pair
        parameters = None
        if not has_waiting(self.study):
            left = None if self.trials is None else self.trials - len(begun_trials(self.study))
            parameters = self.method.ask(replace(self.budget.left(left), at_a_time=self._at_a_time))
            if parameters is None:
                return None
        trial = record(self.study, parameters)
        return trial, self.context.space.suggest(trial)

    def _pair(self) -> "tuple[Trial, Parameters] | None":
        """Begin the exploring trial; return None if no exploration is requested or there is no trial to repeat yet."""
        if self.pairing is None:
            return None
        base = self.pairing.base(self.study, self.trials)
        if base is None:
            is_queued = self._all_begun() and has_waiting(self.study)
            trial = record(self.study, None) if is_queued else None
        else:
            here = self.context.placement
            repeated = Repeated(base.number, self.pairing.placement, here)
            trial = record(self.study, base.params, repeated.attributes())
        return None if trial is None else (trial, self.context.space.suggest(trial))

    def _all_begun(self) -> bool:
        own = [trial for trial in begun_trials(self.study) if Repeated.of(trial) is None]
        return self.trials is not None and len(own) >= self.trials

    def _report_to_method(self) -> None:
        """Report new finished trials to the search method, including those of other machines and earlier attempts."""
        for trial in finished_trials(self.study):
            if trial.number not in self._told:
                self._told.add(trial.number)
                if Repeated.of(trial) is None:
                    self.method.tell(dict(trial.params), outcome_of(trial))

    def _reserve(self) -> None:
        """Reserve time to train the best setting so far again, with other random seeds."""
        if self._seeds and (trials := trials_with_result(self.study)):
            self.budget.minutes.reserve(self._seeds * outcome_of(min(trials, key=lowest_loss)).seconds)

    def _show_epoch(self, number: int, report: EpochReport) -> None:
        """Report an epoch of a running trial, unless the progress was reported just before."""
        if time.monotonic() - self._shown_at >= EPOCH_SECONDS:
            select_by = self.context.schedule.select_by
            name = figure_name(select_by, is_number=self.context.dataset.features.number is not None)
            figure = figure_of(report.validation.loss_by(select_by), select_by)
            self._report(self._on_epoch, running=f"trial {number}, epoch {report.epoch}: {name} {figure:.4f}")

    def _report(self, call: Callable[[Progress], None] | None, *, last: str = "", running: str = "") -> None:
        if call:
            self._shown_at = time.monotonic()
            done = len(finished_trials(self.study))
            losses = list(map(lowest_loss, trials_with_result(self.study)))
            shares = [self.budget.share, done / self.trials if self.trials else 0.0]
            progress = Progress(
                done=done,
                trials=self.trials,
                best_loss=min(losses, default=None),
                select_by=self.context.schedule.select_by,
                share=min(1.0, max(shares)),
                last=last,
                running=running,
                is_number=self.context.dataset.features.number is not None,
            )
            call(progress)


def as_text(number: int, outcome: Outcome, select_by: SelectBy, *, is_number: bool = False) -> str:
    """Return the outcome of a trial as text: validation result, time, early stop and broken limits."""
    if outcome.loss is None:
        return f"Trial {number} failed after {outcome.seconds:.1f} s."
    label = figure_name(select_by, is_number=is_number)
    figure = f"{label} {figure_of(outcome.loss, select_by):.4f} on validation in {outcome.seconds:.1f} s"
    end = "; stopped early, for others were better at the same point" if outcome.state == "pruned" else ""
    broken = [name for name, value in outcome.violations.items() if value > 0]
    beyond = f"; breaks {', '.join(broken)}" if broken else ""
    return f"Trial {number}: {figure}{end}{beyond}."


@contextmanager
def open_executors(
    placement: Placement, count: int, place: ComputeTarget | None = None
) -> Iterator[Sequence[Executor]]:
    """Open executors for `count` trials at the same time, and close them at the end of the block.

    A single trial at a time trains in this process. Several trials train in separate processes, which share the threads
    of the placement, or on nodes of a cluster. Measured step times are those of `count` trials at the same time.

    Raises:
        RequestError: There are fewer GPUs than trials at a time.
    """
    executors = (place or ThisMachine()).executors(placement, count)
    if count > 1:
        log.info("%d trials at a time: %s", count, ", ".join(executor.placement.label for executor in executors))
    try:
        yield executors
    finally:
        for executor in executors:
            executor.close()
