"""The loop of a search: ask, train and tell in every slot, until the budget ends or nothing is left to try."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shunter.engine.executors.role import Executor
from shunter.engine.metrics import FIGURES, SelectBy, figure_of
from shunter.engine.stopping import ShouldStop, StopKind, StopReason
from shunter.errors import ProcessLostError
from shunter.search.budget import SearchBudget
from shunter.search.protocol import Outcome, Parameters, SearchMethod
from shunter.search.study.interrupted import try_again
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
from shunter.search.study.trial import TrialContext, run_trial

if TYPE_CHECKING:
    from optuna import Study, Trial

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a search stands after a trial.

    Attributes:
        done: Trials so far.
        trials: Trials asked for; None where only time or energy ends the search.
        best_loss: Lowest loss on validation so far, by the figure that selects; None before there is one.
        select_by: That figure.
        share: Used share of the trials, or of the time or energy, whichever is nearest to its end; from 0 to 1.
        last: What came of the trial, in words.
    """

    done: int
    trials: int | None
    best_loss: float | None
    select_by: SelectBy
    share: float
    last: str = ""

    @property
    def best(self) -> str | None:
        """Best validation so far, in words."""
        if self.best_loss is None:
            return None
        return f"{FIGURES[self.select_by]} {figure_of(self.best_loss, self.select_by):.4f}"


class Loop:
    """A search while it goes on: who asks next, what is told, and when it ends.

    Its slots share one study and one method, which are asked and told by one at a time.

    Args:
        study: Record of the trials.
        budget: Budget of the search alone.
        trials: Budget in trials; None sets none.
        should_stop: Asked after each step; a reason ends the search.
        on_trial: Called after each trial.
        seeds: Trainings of the best setting that follow, in turns as long as its trial, within the search's time.
    """

    def __init__(
        self,
        study: "Study",
        budget: SearchBudget,
        trials: int | None,
        *,
        should_stop: ShouldStop,
        on_trial: Callable[[Progress], None] | None,
        seeds: int = 0,
    ) -> None:
        self.study, self.budget, self.trials = study, budget, trials
        self.stop_reason: StopReason | None = None
        self.resumed = len(finished_trials(study))
        self._should_stop, self._on_trial, self._seeds = should_stop, on_trial, seeds
        self._told: set[int] = set()
        self._lock = threading.RLock()
        self._gave_up = threading.Event()

    def run(self, method: SearchMethod, context: TrialContext, slots: Sequence[Executor]) -> None:
        """Train what a method proposes in all slots until the search ends.

        With one slot that is done in this thread, which takes Ctrl-C between steps.
        """
        self.method, self.context, self._at_a_time = method, context, len(slots)
        self._reserve()
        if len(slots) == 1:
            self._in_slot(slots[0])
            return
        with ThreadPoolExecutor(len(slots), thread_name_prefix="trial") as threads:
            running = [threads.submit(self._in_slot, slot) for slot in slots]
            try:
                done, _ = wait(running, return_when=FIRST_EXCEPTION)
                for slot_run in done:
                    slot_run.result()
            except BaseException:
                self._gave_up.set()
                for slot in slots:
                    slot.close()
                raise

    def ended(self) -> StopReason | None:
        """Return what ends the search and, asked after each step, its trials under way; None while it may go on."""
        if self._gave_up.is_set():
            raise KeyboardInterrupt
        return self._should_stop() or self.budget.exhausted()

    def _in_slot(self, slot: Executor) -> None:
        while (begun := self._begin()) is not None:
            trial, parameters = begun
            try:
                outcome = run_trial(trial, parameters, self.context, slot)
            except ProcessLostError as error:
                log.warning("Trial %d begins anew: %s", trial.number, error)
                with self._lock:
                    try_again(self.study, trial)
                continue
            with self._lock:
                tell(self.study, trial, outcome, self.context.cost)
                self._tell_method()
                self._reserve()
                self.budget.save()
                self._report(in_words(trial.number, outcome, self.context.schedule.select_by))

    def _begin(self) -> "tuple[Trial, Parameters] | None":
        """The next trial; None when the search has ended."""
        with self._lock:
            if self._all_begun():
                return None
            because = self.ended()
            if because is None:
                self._tell_method()
                begun = self._next()
                if begun is not None:
                    return begun
                because = self.ended() or StopReason(StopKind.EXHAUSTED)
            self.stop_reason = self.stop_reason or because
            return None

    def _next(self) -> "tuple[Trial, Parameters] | None":
        parameters = None
        if not has_waiting(self.study):
            left = None if self.trials is None else self.trials - len(begun_trials(self.study))
            parameters = self.method.ask(replace(self.budget.left(left), at_a_time=self._at_a_time))
            if parameters is None:
                return None
        trial = record(self.study, parameters)
        return trial, self.context.space.suggest(trial)

    def _all_begun(self) -> bool:
        return self.trials is not None and len(begun_trials(self.study)) >= self.trials

    def _tell_method(self) -> None:
        """Tell the method of trials that it does not know: finished here, by other machines, or in earlier attempts."""
        for trial in finished_trials(self.study):
            if trial.number not in self._told:
                self._told.add(trial.number)
                self.method.tell(dict(trial.params), outcome_of(trial))

    def _reserve(self) -> None:
        """Leave the seeds of the setting that is best so far their time."""
        if self._seeds and (trials := trials_with_result(self.study)):
            self.budget.minutes.reserve(self._seeds * outcome_of(min(trials, key=lowest_loss)).seconds)

    def _report(self, last: str) -> None:
        if self._on_trial:
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
            )
            self._on_trial(progress)


def in_words(number: int, outcome: Outcome, select_by: SelectBy) -> str:
    """What came of a trial: its quality on validation, its time, and why it is out where it is."""
    if outcome.loss is None:
        return f"Trial {number} failed after {outcome.seconds:.1f} s."
    figure = f"{FIGURES[select_by]} {figure_of(outcome.loss, select_by):.4f} on validation in {outcome.seconds:.1f} s"
    end = "; stopped early, for others were better where it stood" if outcome.state == "pruned" else ""
    broken = [name for name, value in outcome.violations.items() if value > 0]
    beyond = f"; breaks {', '.join(broken)}" if broken else ""
    return f"Trial {number}: {figure}{end}{beyond}."
