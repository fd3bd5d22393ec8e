"""Main function of the search, from a request to the ranked settings that were tried."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.engine.data.dataset import Dataset
from shunter.engine.data.resolution import too_few_to_choose
from shunter.engine.execution import execution_of
from shunter.engine.executors.role import ComputeTarget, Executor, Reading
from shunter.engine.overrides import read_overrides
from shunter.engine.stopping import RunClock, ShouldStop, StopKind, StoppedError, StopReason
from shunter.engine.stopping_text import stop_text
from shunter.errors import InfeasibleError, QualityNotReachedError, RequestError, TrainingError
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.types import Placement
from shunter.model_families import MODEL_FAMILIES
from shunter.parallel import periodic
from shunter.requests import SEARCH_SPACES, SearchCost, SearchSpaceName, TrainRequest
from shunter.search.constraints import NEAR_AUC, breaks_a_measured_limit, format_violations
from shunter.search.context import PastStudy, SearchContext
from shunter.search.job import SearchJob
from shunter.search.methods.registry import PAST_SEARCHES, build_method
from shunter.search.minutes import TRIALS, BudgetMeter, Minutes
from shunter.search.protocol import SearchMethod, Space
from shunter.search.result import Setting, TuneResult, front_settings, ranked
from shunter.search.space.learning import usual_rates, weights_of_tasks
from shunter.search.space.settings import SearchSpace
from shunter.search.study.address import storage_address
from shunter.search.study.best_models import BestTrialModels
from shunter.search.study.loop import Loop, Progress, open_executors
from shunter.search.study.pair import pair_of
from shunter.search.study.storage import failures, open_study, storage_errors, trials_with_result
from shunter.search.study.trial import TrialContext
from shunter.tracking.runs import open_run

if TYPE_CHECKING:
    from optuna import Study

NEAREST = 3  # number of settings listed in an error message


def search(
    job: SearchJob,
    *,
    place: ComputeTarget | None = None,
    should_stop: ShouldStop | None = None,
    on_trial: Callable[[Progress], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> TuneResult:
    """Try settings within the budget, on the training and validation parts only, and rank them.

    Called again with the same folder, the function resumes an interrupted search: finished trials are not repeated, and
    time and energy of earlier attempts count. A trial that fails (loss not finite, out of memory, or its process died)
    is recorded, and the search continues.

    Args:
        job: Description of the search.
        place: Compute target that trains instead of this machine.
        should_stop: Called after each step; a returned reason ends the search with the results so far.
        on_trial: Called after each trial.
        on_epoch: Called after epochs of running trials; short epochs may be skipped.

    Raises:
        TrainingError: No trial has a result.
        InfeasibleError: Every trial exceeds a limit by a measured value.
        RequestError: The family, the method, a task with a weight or a value of the space is invalid, or the batch is
            larger than the data.
        DataError: An array cannot be read.
        TrackingError: A store fails.
        CheckpointError: The folder cannot be written.
    """
    options = job.request.search
    space = job.space or space_for(job.dataset, job.request, job.placement, job.directory, job.parent_run_id)
    check_not_empty(space)
    if place is None and options.search_cost == SearchCost.ENERGY:
        check_energy_can_be_measured(job.placement)
    address = storage_address(job.directory, options.search_storage)
    with storage_errors(address), ExitStack() as stack:
        is_shared = options.search_storage is not None  # then the name of the study depends on data and epochs too
        belongs_to = f"{job.dataset.fingerprint}|{job.request.longest_epochs}" if is_shared else ""
        by = job.schedule.select_by
        study = open_study(address, space, cost=job.cost, belongs_to=belongs_to, is_shared=is_shared, select_by=by)
        executors = stack.enter_context(open_executors(job.placement, options.trials_at_a_time, place))
        meters = stack.enter_context(open_meters(executors, place))
        minutes = job.minutes
        if minutes is None:
            minutes = Minutes.of(options, RunClock())
            stack.enter_context(minutes.clock.kept_in(job.directory))
        budget = BudgetMeter(job.directory, minutes, meters.joules, max_kwh=options.search_kwh)
        stack.enter_context(minutes.clock.counting(TRIALS))
        loop = Loop(
            study,
            budget,
            options.most_trials,
            should_stop=should_stop or (lambda: None),
            on_trial=on_trial,
            on_epoch=on_epoch,
            seeds=job.seeds,
            pairing=job.pairing,
            in_rounds=place is None and options.search_minutes is None and options.search_kwh is None,
        )
        method = build_method(options.search_method, _method_context(job, space, study, loop))
        with periodic(budget.save):
            loop.run(method, _trial_context(job, space, study, loop, method), executors)
        return _result(job, space, study, loop, meters)


def _method_context(job: SearchJob, space: Space, study: "Study", loop: Loop) -> SearchContext:
    """Return the context of the search method; it includes past searches unless the request excludes them."""
    return SearchContext(
        space=space,
        study=study,
        dataset=job.dataset,
        execution=execution_of(job.placement),
        schedule=job.schedule,
        directory=job.directory / "method",
        cost=job.cost,
        seed=job.request.seed,
        trials=job.request.search.most_trials,
        past=_past(job),
        limits=job.request.limits,
        run_id=job.parent_run_id,
        clock=loop.budget.minutes.clock,
        should_stop=loop.ended,
    )


def _past(job: SearchJob) -> tuple[PastStudy, ...]:
    """Return earlier searches on similar data; empty if the extension that reads them is not installed."""
    if not PAST_SEARCHES.entries["studies"].is_installed:
        return ()
    options = job.request.search
    return PAST_SEARCHES.load("studies")(
        job.dataset, job.directory, job.parent_run_id, is_cold=options.cold_start, trials=options.most_trials
    )


def _trial_context(job: SearchJob, space: Space, study: "Study", loop: Loop, method: SearchMethod) -> TrialContext:
    """Return the context that all trials of the search share."""
    by_rank = job.request.ensemble.trained
    is_time_up = loop.budget.time_is_up
    return TrialContext(
        dataset=job.dataset,
        space=space,
        schedule=job.schedule,
        cost=job.cost,
        limits=job.request.limits,
        final=job.final_training,
        parent_run_id=job.parent_run_id,
        should_stop=loop.ended,
        study=study,
        best_models=BestTrialModels(job.directory, job.keep, job.cost, is_time_up, by_rank) if job.keep else None,
        observe=job.observe,
        comparison=getattr(method, "comparison", None),
        placement=job.placement,
    )


def _result(job: SearchJob, space: Space, study: "Study", loop: Loop, meters: "SearchMeters") -> TuneResult:
    """Return the ranked settings of a search that has ended; see `search` for the errors."""
    _check_has_result(study, loop.stop_reason)
    settings, validation = ranked(study, space, job.cost), job.dataset.splits["validation"]
    _check_feasible(settings, job.request.limits.min_auc)
    is_number, pruned = job.dataset.features.number is not None, sum(setting.is_pruned for setting in settings)
    return TuneResult(
        settings=settings,
        complete_trials=len(settings) - pruned,
        pruned_trials=pruned,
        failed_trials=len(failures(study)),
        resumed_trials=loop.resumed,
        stop_reason=loop.stop_reason,
        method=job.request.search.search_method,
        select_by=job.schedule.select_by,
        cost=job.cost,
        front=tuple(setting.trial_number for setting in front_settings(settings, job.cost or "step_seconds")),
        seconds=loop.budget.seconds,
        joules=loop.budget.joules,
        energy_source=meters.source,
        too_few_positives=None if is_number else too_few_to_choose(validation.positives, validation.rows),
        is_number=is_number,
        pair=pair_of(study),
    )


def _check_has_result(study: "Study", reason: StopReason | None) -> None:
    """Raise if no trial has a result: StoppedError if a limit ended the search, TrainingError if every trial failed."""
    if trials_with_result(study):
        return
    reasons = failures(study)
    if reasons:
        raise TrainingError(f"All {len(reasons)} trials failed. Error of the last one: {reasons[-1]}")
    reason = reason or StopReason(StopKind.TRIALS)
    raise StoppedError(
        f"The search budget ended before the first trial ({stop_text(reason)}): raise the limits.", reason
    )


def _check_feasible(settings: Sequence[Setting], min_auc: float | None) -> None:
    """Raise InfeasibleError or QualityNotReachedError if every setting exceeds a limit by a measured value.

    Limits that are exceeded by estimate only do not count: the final training stops at the limit, with its best epoch.
    """
    if not all(breaks_a_measured_limit(setting.violations) for setting in settings):
        return
    nearest = "; ".join(
        f"trial {setting.trial_number} ({setting.spec.family}, NE {setting.validation_ne:.4f}) breaks "
        f"{format_violations(setting.violations)}"
        for setting in settings[:NEAREST]
    )
    message = (
        f"None of the {len(settings)} settings that were tried keeps the limits, and the nearest are these: {nearest}; "
        "raise the limits or allow a longer search."
    )
    least = min(setting.violations.get("min_auc", 0.0) for setting in settings)
    if min_auc is not None and least > NEAR_AUC:
        raise QualityNotReachedError(message, min_auc - least)
    raise InfeasibleError(message)


def space_for(
    dataset: Dataset, request: TrainRequest, placement: Placement, directory: Path, parent_run_id: str
) -> Space:
    """Return the search space of a request, for the size of the data.

    A family with towers also learns the partition of its fields, at the placement of the trials.

    Raises:
        RequestError: The family, or a task with a weight, is unknown, or the space is empty.
        MissingExtensionError: The space belongs to an extension that is not installed.
    """
    weights = weights_of_tasks(request.training.task_weights, dataset.features.tasks)
    overrides = read_overrides(request.model, request.architecture.settings)
    if request.search.space == SearchSpaceName.ARCHITECTURE:
        space, rates = SEARCH_SPACES.load(SearchSpaceName.ARCHITECTURE), usual_rates(placement.batch_size)
        return space.for_dataset(dataset, task_weights=weights, overrides=overrides, hyperparameters=rates)
    partitions_of = MODEL_FAMILIES.load_part(request.model, "field_partitions")
    partitions = partitions_of(dataset, request, placement, directory, open_run(parent_run_id)) if partitions_of else {}
    is_wide = request.search.space == SearchSpaceName.WIDE
    in_file = placement.embedding_memory_bytes is not None
    space = SearchSpace.for_dataset(dataset, request.model, weights, overrides, is_wide=is_wide, in_file=in_file)
    space = space.at_batch_size(placement.batch_size)
    return space.model_copy(update={"tower_partitions": partitions})


def check_not_empty(space: Space) -> None:
    """Raise if a parameter of the space has no values, or if the space has no parameters and the user fixed none.

    Raises:
        RequestError: The space is empty.
    """
    factors = space.factors()
    for name, values in factors.items():
        if not values:
            raise RequestError(f"The factor {name} of the search space has no values: give at least one.")
    if not factors and not (isinstance(space, SearchSpace) and space.fixed_architecture):
        raise RequestError("The search space has no factors: give at least one.")


class SearchMeters:
    """Sum of several energy meters.

    Args:
        meters: Running meters; no two of them measure the same energy.
    """

    def __init__(self, meters: Sequence[Reading]) -> None:
        self._meters = meters

    def joules(self) -> float | None:
        """Return the joules used so far; None if one of the meters does not work."""
        joules = [meter.reading.joules for meter in self._meters]
        return None if None in joules else sum(used for used in joules if used is not None)

    @property
    def source(self) -> str | None:
        """Source of the energy: `measured` or `estimated`; None if the energy is unknown."""
        methods = {reading.method for meter in self._meters if (reading := meter.reading).seconds}
        if not methods or "unavailable" in methods:
            return None
        return "measured" if methods == {"measured"} else "estimated"


@contextmanager
def open_meters(executors: Sequence[Executor], place: ComputeTarget | None) -> Iterator[SearchMeters]:
    """Open the energy meters of the whole search.

    The meters measure this machine, including the search method itself, or the nodes of `place` that train the trials.
    """
    if place is None:
        meters = [measure_energy(*(executor.placement.accelerator for executor in executors))]
    else:
        meters = [executor.meter() for executor in executors]
    with ExitStack() as stack:
        yield SearchMeters([stack.enter_context(meter) for meter in meters])


def check_energy_can_be_measured(placement: Placement) -> None:
    """Raise if no meter on this machine can measure energy.

    Raises:
        RequestError: No energy meter works on this machine.
    """
    with measure_energy(placement.accelerator) as meter:
        reading = meter.reading
    if reading.method == "unavailable":
        raise RequestError(
            "--search-cost energy needs an energy meter, and none works on this machine "
            f"({reading.source}): use time or bytes."
        )
