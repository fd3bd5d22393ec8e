"""The search: points that a method proposes, each trained in a slot, until the budget ends."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import Schedule
from engine.dataset import Dataset
from hardware.budget import JOULES_PER_KWH
from hardware.meter import measure_energy
from hardware.types import Placement
from shunter.errors import InfeasibleError, RequestError, TrainingError
from tasks.place import Place, Reading, Slot
from tasks.placement import execution_of
from tasks.request import SearchCost, TrainRequest
from tasks.tune.budget import SearchBudget
from tasks.tune.constraints import FinalTraining, breaks_a_measured_limit, words
from tasks.tune.halving import Halving, checks_for
from tasks.tune.meta.past import begin_from_past
from tasks.tune.method import Cost, Parameters, SearchMethod, Space
from tasks.tune.methods import SearchContext, build_method
from tasks.tune.result import Setting, TuneResult, ranked, summarise
from tasks.tune.spaces import check_not_empty, space_for
from tasks.tune.study import (
    begun_trials,
    failures,
    finished_trials,
    has_waiting,
    lowest_ne,
    open_study,
    outcome_of,
    record,
    storage_address,
    storage_errors,
    tell,
    trials_with_result,
)
from tasks.tune.trial import Terms, run_trial
from tasks.tune.workers import open_slots

if TYPE_CHECKING:
    from optuna import Study, Trial

COSTS: dict[SearchCost, Cost] = {
    SearchCost.TIME: "step_seconds",
    SearchCost.ENERGY: "joules_per_sample",
    SearchCost.BYTES: "parameter_bytes",
}
NEAREST = 3  # points that an error names


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a search stands after a trial.

    Attributes:
        done: trials so far.
        trials: that were asked for; None where only time or energy ends the search.
        best_ne: the lowest validation NE so far.
        share: of the trials, or of the time or energy, whichever is nearest to its end; from 0 to 1.
    """

    done: int
    trials: int | None
    best_ne: float | None
    share: float


def search(
    dataset: Dataset,
    request: TrainRequest,
    placement: Placement,
    directory: Path,
    *,
    parent_run_id: str,
    should_stop: Callable[[], str | None] | None = None,
    on_trial: Callable[[Progress], None] | None = None,
    space: Space | None = None,
    place: Place | None = None,
    used_seconds: float = 0.0,
    used_joules: float = 0.0,
    checks: tuple[float, ...] | None = None,
) -> TuneResult:
    """Try settings within the budget, on the training and validation parts only, and rank them.

    Interrupted and called again with the same folder, it goes on: finished trials are not repeated, and what was used
    counts. A trial that fails, by a loss that is no number, for want of memory or because its process died, is noted
    and the search goes on.

    Args:
        dataset: the data; its test part is not touched.
        request: budget, method, space and limits of the search, longest training, seed, model family.
        placement: where the trials run.
        directory: of this search alone; the study is kept in it, unless the request names a storage.
        parent_run_id: MLflow run below which each trial gets its own.
        should_stop: asked after each step; a text ends the search, which keeps what it has.
        on_trial: called after each trial.
        space: what is searched; by default as the request says, for the size of the data.
        place: that trains instead of this machine.
        used_seconds: of the run's limits, before the search.
        used_joules: the same.
        checks: passes over the data after which trainings are compared within the first epoch; by its size when None.

    Raises:
        TrainingError: no trial came to a result.
        InfeasibleError: every trial breaks a limit by what it measured.
        RequestError: the family, the method, a task with a weight or a value of the space is wrong, or the batch is
            larger than the data.
        DataError: an array cannot be read.
        TrackingError: a store fails.
        CheckpointError: the folder cannot be written.
    """
    space = space or space_for(dataset, request, placement, directory, parent_run_id)
    check_not_empty(space)
    cost = COSTS[request.search_cost] if request.search_cost else None
    _check_energy_can_be_measured(request, placement, place)
    checks = checks_for(dataset.splits["train"].rows) if checks is None else checks
    address = storage_address(directory, request.search_storage)
    is_shared = request.search_storage is not None
    belongs_to = f"{dataset.fingerprint}|{request.max_epochs}" if is_shared else ""
    with storage_errors(address), ExitStack() as stack:
        study = open_study(address, space, cost=cost, belongs_to=belongs_to, is_shared=is_shared)
        schedule = Schedule(max_epochs=request.max_epochs, seed=request.seed, checks=checks)
        context = SearchContext(
            space=space,
            study=study,
            dataset=dataset,
            execution=execution_of(placement),
            schedule=schedule,
            directory=directory / "method",
            cost=cost,
            seed=request.seed,
            trials=request.most_trials,
            past=begin_from_past(dataset, directory, parent_run_id, is_cold=request.cold_start),
        )
        slots = stack.enter_context(open_slots(placement, request.parallel_trials, place))
        meters = [stack.enter_context(meter) for meter in _meters(slots, place)]
        budget = SearchBudget(
            directory,
            lambda: _joules(meters),
            max_seconds=None if request.search_minutes is None else request.search_minutes * 60,
            max_joules=None if request.search_kwh is None else request.search_kwh * JOULES_PER_KWH,
        )
        run = _Search(
            study=study,
            method=build_method(request.search_method, context),
            budget=budget,
            should_stop=should_stop or (lambda: None),
            on_trial=on_trial,
            trials=request.most_trials,
        )
        run.terms = Terms(
            dataset=dataset,
            space=space,
            schedule=schedule,
            cost=cost,
            limits=request.limits,
            final=FinalTraining.of(request, used_seconds, used_joules),
            halving=Halving(study, checks, request.max_epochs),
            parent_run_id=parent_run_id,
            should_stop=run.ended,
        )
        run.in_slots(slots)
        _check_has_result(study, run.stopped_because)
        settings = ranked(study, space, cost)
        _check_feasible(settings)
        return summarise(
            study,
            settings,
            method=request.search_method,
            cost=cost,
            resumed_trials=run.resumed,
            stopped_because=run.stopped_because,
            seconds=budget.seconds,
            joules=budget.joules,
            energy_source=_energy_source(meters),
        )


class _Search:
    """A search while it goes on: who asks next, what is told, and when it ends."""

    terms: Terms

    def __init__(
        self,
        *,
        study: "Study",
        method: SearchMethod,
        budget: SearchBudget,
        should_stop: Callable[[], str | None],
        on_trial: Callable[[Progress], None] | None,
        trials: int | None,
    ) -> None:
        self.study, self.method, self.budget, self.trials = study, method, budget, trials
        self.stopped_because: str | None = None
        self.resumed = len(finished_trials(study))
        self._should_stop, self._on_trial = should_stop, on_trial
        self._told: set[int] = set()
        self._lock = threading.RLock()
        self._gave_up = threading.Event()

    def in_slots(self, slots: Sequence[Slot]) -> None:
        """Train in all slots until the search ends; with one slot in this thread, which takes Ctrl-C between steps."""
        if len(slots) == 1:
            self._in_slot(slots[0])
            return
        with ThreadPoolExecutor(len(slots), thread_name_prefix="trial") as threads:
            running = [threads.submit(self._in_slot, slot) for slot in slots]
            try:
                done, _ = wait(running, return_when=FIRST_EXCEPTION)
                for one in done:
                    one.result()
            except BaseException:
                self._gave_up.set()
                for slot in slots:
                    slot.close()
                raise

    def ended(self) -> str | None:
        """What ends the search, its trials under way included; None while it may go on."""
        if self._gave_up.is_set():
            raise KeyboardInterrupt
        return self._should_stop() or self.budget.exhausted()

    def _in_slot(self, slot: Slot) -> None:
        while (begun := self._begin()) is not None:
            trial, parameters = begun
            outcome = run_trial(trial, parameters, self.terms, slot)
            with self._lock:
                tell(self.study, trial, outcome, self.terms.cost)
                self._tell_method()
                self.budget.save()
                self._report()

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
                because = "The method has no other point to propose."
            self.stopped_because = self.stopped_because or because
            return None

    def _next(self) -> "tuple[Trial, Parameters] | None":
        parameters = None
        if not has_waiting(self.study):
            left = None if self.trials is None else self.trials - len(begun_trials(self.study))
            parameters = self.method.ask(self.budget.left(left))
            if parameters is None:
                return None
        trial = record(self.study, parameters)
        return trial, self.terms.space.suggest(trial)

    def _all_begun(self) -> bool:
        return self.trials is not None and len(begun_trials(self.study)) >= self.trials

    def _tell_method(self) -> None:
        """Tell the method of trials that it does not know: finished here, by other machines, or in earlier attempts."""
        for trial in finished_trials(self.study):
            if trial.number not in self._told:
                self._told.add(trial.number)
                self.method.tell(dict(trial.params), outcome_of(trial))

    def _report(self) -> None:
        if self._on_trial:
            done = len(finished_trials(self.study))
            best = min(map(lowest_ne, trials_with_result(self.study)), default=None)
            shares = [self.budget.share, done / self.trials if self.trials else 0.0]
            self._on_trial(Progress(done=done, trials=self.trials, best_ne=best, share=min(1.0, max(shares))))


def _joules(meters: Sequence[Reading]) -> float | None:
    joules = [meter.reading.joules for meter in meters]
    return None if None in joules else sum(one for one in joules if one is not None)


def _meters(slots: Sequence[Slot], place: Place | None) -> Sequence[AbstractContextManager[Reading]]:
    """Of the whole search: this machine, with what the method does itself, or the nodes that train for it."""
    if place is not None:
        return [slot.meter() for slot in slots]
    return [measure_energy(*(slot.placement.accelerator for slot in slots))]


def _energy_source(meters: Sequence[Reading]) -> str | None:
    methods = {reading.method for meter in meters if (reading := meter.reading).seconds}
    if not methods or "unavailable" in methods:
        return None
    return "measured" if methods == {"measured"} else "estimated"


def _check_energy_can_be_measured(request: TrainRequest, placement: Placement, place: Place | None) -> None:
    if place is not None or request.search_cost != SearchCost.ENERGY:
        return
    with measure_energy(placement.accelerator) as meter:
        reading = meter.reading
    if reading.method == "unavailable":
        raise RequestError(
            f"--search-cost energy needs a meter of energy, and none works here ({reading.source}): use time or bytes."
        )


def _check_has_result(study: "Study", stopped_because: str | None) -> None:
    """Raise when there is no setting to go on with.

    Raises:
        TrainingError: every trial failed, or the budget ended before the first one.
    """
    if trials_with_result(study):
        return
    reasons = failures(study)
    if reasons:
        raise TrainingError(f"All {len(reasons)} trials failed, the last one so: {reasons[-1]}")
    raise TrainingError(f"The budget ended before the first trial ({stopped_because}): raise the limits.")


def _check_feasible(settings: Sequence[Setting]) -> None:
    """Raise when every setting breaks a limit by what was measured of it.

    Estimates of the training to come alone are no reason to give up: that training stops at the limit, with its best
    epoch.

    Raises:
        InfeasibleError: the message names the nearest settings, and by how much they miss.
    """
    if not all(breaks_a_measured_limit(setting.violations) for setting in settings):
        return
    nearest = "; ".join(
        f"trial {one.trial_number} ({one.spec.family}, NE {one.validation_ne:.4f}) breaks {words(one.violations)}"
        for one in settings[:NEAREST]
    )
    raise InfeasibleError(
        f"None of the {len(settings)} settings that were tried keeps the limits, and the nearest are these: {nearest}; "
        "raise the limits or allow a longer search."
    )
