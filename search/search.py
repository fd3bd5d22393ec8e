"""The search: from a request to the settings that were tried, ranked."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import Schedule
from engine.data.dataset import Dataset
from engine.execution import execution_of
from engine.executors.role import Executor, Place, Reading
from hardware.budget import JOULES_PER_KWH
from hardware.meters.meter import measure_energy
from hardware.types import Placement
from search.budget import SearchBudget
from search.constraints import FinalTraining, breaks_a_measured_limit, format_violations
from search.context import SearchContext
from search.meta.past import begin_from_past
from search.methods.registry import build_method
from search.protocol import Cost, SearchMethod, Space
from search.result import Setting, TuneResult, ranked, summarise
from search.space.choose import check_not_empty, space_for
from search.study.halving import checks_for
from search.study.loop import Loop, Progress
from search.study.storage import failures, open_study, storage_address, storage_errors, trials_with_result
from search.study.trial import Terms
from search.study.workers import open_executors
from shunter.errors import InfeasibleError, RequestError, TrainingError
from shunter.requests.training import SearchCost, TrainRequest

if TYPE_CHECKING:
    from optuna import Study

COSTS: dict[SearchCost, Cost] = {
    SearchCost.TIME: "step_seconds",
    SearchCost.ENERGY: "joules_per_sample",
    SearchCost.BYTES: "parameter_bytes",
}
NEAREST = 3  # points that an error names


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
        dataset: The data; its test part is not touched.
        request: Budget, method, space and limits of the search, longest training, seed, model family.
        placement: Placement of the trials.
        directory: Folder of this search alone; the study is kept in it, unless the request names a storage.
        parent_run_id: MLflow run below which each trial gets its own.
        should_stop: Asked after each step; a text ends the search, which keeps what it has.
        on_trial: Called after each trial.
        space: Space to search; by default what the request says, for the size of the data.
        place: Place that trains instead of this machine.
        used_seconds: Part of the run's time limit used before the search.
        used_joules: Part of the run's energy limit used before the search.
        checks: Passes over the data after which trainings are compared within the first epoch; by its size when None.

    Raises:
        TrainingError: No trial came to a result.
        InfeasibleError: Every trial breaks a limit by what it measured.
        RequestError: The family, the method, a task with a weight or a value of the space is wrong, or the batch is
            larger than the data.
        DataError: An array cannot be read.
        TrackingError: A store fails.
        CheckpointError: The folder cannot be written.
    """
    space = space or space_for(dataset, request, placement, directory, parent_run_id)
    check_not_empty(space)
    _check_energy_can_be_measured(request, placement, place)
    address = storage_address(directory, request.search.search_storage)
    cost = COSTS[request.search.search_cost] if request.search.search_cost else None
    is_shared = request.search.search_storage is not None
    belongs_to = f"{dataset.fingerprint}|{request.training.max_epochs}" if is_shared else ""
    with storage_errors(address), ExitStack() as stack:
        study = open_study(address, space, cost=cost, belongs_to=belongs_to, is_shared=is_shared)
        slots = stack.enter_context(open_executors(placement, request.search.parallel_trials, place))
        meters = [stack.enter_context(meter) for meter in _meters(slots, place)]
        budget = _budget(request, directory, meters)
        loop = Loop(
            study, budget, request.search.most_trials, should_stop=should_stop or (lambda: None), on_trial=on_trial
        )
        terms = Terms(
            dataset=dataset,
            space=space,
            schedule=_schedule(dataset, request, checks),
            cost=cost,
            limits=request.limits,
            final=FinalTraining.of(request, used_seconds, used_joules),
            parent_run_id=parent_run_id,
            should_stop=loop.ended,
            study=study,
        )
        loop.run(_method(request, terms, placement, directory), terms, slots)
        _check_has_result(study, loop.stopped_because)
        settings = ranked(study, space, cost)
        _check_feasible(settings)
        return summarise(
            study,
            settings,
            method=request.search.search_method,
            cost=cost,
            resumed_trials=loop.resumed,
            stopped_because=loop.stopped_because,
            seconds=budget.seconds,
            joules=budget.joules,
            energy_source=_energy_source(meters),
        )


def _schedule(dataset: Dataset, request: TrainRequest, checks: tuple[float, ...] | None) -> Schedule:
    by_size = checks_for(dataset.splits["train"].rows)
    return Schedule(
        max_epochs=request.training.max_epochs, seed=request.seed, checks=by_size if checks is None else checks
    )


def _method(request: TrainRequest, terms: Terms, placement: Placement, directory: Path) -> SearchMethod:
    """The method that the request names, which begins from the past unless the request says otherwise."""
    context = SearchContext(
        space=terms.space,
        study=terms.study,
        dataset=terms.dataset,
        execution=execution_of(placement),
        schedule=terms.schedule,
        directory=directory / "method",
        cost=terms.cost,
        seed=request.seed,
        trials=request.search.most_trials,
        past=begin_from_past(terms.dataset, directory, terms.parent_run_id, is_cold=request.search.cold_start),
        limits=request.limits,
        run_id=terms.parent_run_id,
        should_stop=terms.should_stop,
    )
    return build_method(request.search.search_method, context)


def _budget(request: TrainRequest, directory: Path, meters: Sequence[Reading]) -> SearchBudget:
    return SearchBudget(
        directory,
        lambda: _joules(meters),
        max_seconds=None if request.search.search_minutes is None else request.search.search_minutes * 60,
        max_joules=None if request.search.search_kwh is None else request.search.search_kwh * JOULES_PER_KWH,
    )


def _joules(meters: Sequence[Reading]) -> float | None:
    joules = [meter.reading.joules for meter in meters]
    return None if None in joules else sum(used for used in joules if used is not None)


def _meters(slots: Sequence[Executor], place: Place | None) -> Sequence[AbstractContextManager[Reading]]:
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
    if place is not None or request.search.search_cost != SearchCost.ENERGY:
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
        TrainingError: Every trial failed, or the budget ended before the first one.
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
        InfeasibleError: The message names the nearest settings, and by how much they miss.
    """
    if not all(breaks_a_measured_limit(setting.violations) for setting in settings):
        return
    nearest = "; ".join(
        f"trial {setting.trial_number} ({setting.spec.family}, NE {setting.validation_ne:.4f}) breaks "
        f"{format_violations(setting.violations)}"
        for setting in settings[:NEAREST]
    )
    raise InfeasibleError(
        f"None of the {len(settings)} settings that were tried keeps the limits, and the nearest are these: {nearest}; "
        "raise the limits or allow a longer search."
    )
