"""Training of the ensemble's members: the best settings, and a model that learns the predictions of their ensemble."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, TypeVar

from shunter.engine.checkpoint.checked_files import WEIGHTS
from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.config import Schedule
from shunter.engine.ensemble.distillation import softened
from shunter.engine.ensemble.result import FILE_OVERHEAD_BYTES
from shunter.engine.execution import execution_of
from shunter.engine.executors.adaptation import Adaptation
from shunter.engine.executors.role import ComputeTarget, Executor
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.overrides import read_overrides
from shunter.engine.stopping import time_limit
from shunter.engine.trained_model import TrainedModel, read_finished, snapshots_of
from shunter.hardware.devices.discovery import usable_cores
from shunter.hardware.reservation import cores_reserved_here
from shunter.hardware.types import Placement
from shunter.planner.describe import members_to_train
from shunter.planner.predict.observe import Expectation, expect
from shunter.planner.redecide import alternatives, redecide
from shunter.planner.together import trainings_at_a_time
from shunter.requests import Distill, EnsembleOf, TrainRequest
from shunter.search.minutes import Minutes, unlimited
from shunter.search.result import Setting, TuneResult
from shunter.search.study.best_models import stored_trial_model
from shunter.search.study.loop import open_executors
from shunter.tasks.accelerators import announce
from shunter.tasks.ensemble.combine import Combining, EnsembleLimits
from shunter.tasks.ensemble.ending import is_done, positions_in_time
from shunter.tasks.run_context import RunContext
from shunter.tasks.train import adopt_trial, train_member, train_model
from shunter.tasks.training_plans import planner
from shunter.tracking.runs import open_run

PAST_MINUTES = "past the minutes"  # name of the clock's span for a training run that may exceed the minutes
PATIENCE = 2  # epochs without a better validation NE
DISTILLED = "distilled"

Result_co = TypeVar("Result_co", covariant=True)


class Training(Protocol[Result_co]):
    """Function that executes one training run."""

    def __call__(self, place: ComputeTarget | None = None) -> Result_co:
        """Train with the executor of `place`; with None, use the compute target of the run."""
        ...


@dataclass(frozen=True)
class One:
    """Compute target with a single executor, which several training runs use one after the other."""

    own: Executor

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        """Return the executor; the placement is ignored."""
        return self.own

    def executors(self, placement: Placement, count: int) -> Sequence[Executor]:
        """Return the executor in a list; the placement is ignored."""
        return [self.own]


def train_members(run: RunContext, tuned: TuneResult, minutes: Minutes | None = None) -> list[TrainedModel]:
    """Train the best settings to completion; with fewer settings than members, repeat settings with other seeds.

    The first training run of a setting has the seed of the search, so that a trial that was trained to its end becomes
    a member without another training run. For each training run saved in this way, the best setting is trained with a
    further seed, if `--search-minutes` leaves time. If no size of the ensemble is requested, further finished trials
    become members, too, because they need no training. `--parallel-trials` limits the number of parallel training runs;
    the selector chooses the number.

    With a limit of minutes, only members that are expected to finish in time are trained, and a training run that
    exceeds the limit ends with its best epoch. If that leaves no member, the best setting is trained for at least as
    long as its trial was.

    Args:
        run: Context of the run.
        tuned: Result of the search, with the best settings.
        minutes: Minutes of the search, of which a part is used; None sets no limit.
    """
    minutes = minutes or unlimited()
    if run.request.ensemble.ensemble_of is EnsembleOf.SNAPSHOTS:
        return _train_snapshots(run, tuned, minutes)
    size, most, settings = run.request.ensemble.trained, run.request.ensemble.most, tuned.winners
    if run.request.ensemble.ensemble_of is EnsembleOf.CHAMPIONS:
        size = most = 1
    limited = run.within(minutes.exhausted)

    def made(setting: Setting, turn: int, folder: str, name: str) -> Training[TrainedModel | None]:
        def train(place: ComputeTarget | None = None) -> TrainedModel | None:
            if limited.should_stop() and not is_done(run, folder, None if turn else setting):
                return None  # a trained model is adopted, because that takes no training
            return _member(limited, setting, turn, folder, name, place)

        return train

    def of_position(position: int) -> Training[TrainedModel | None]:
        turn, number = divmod(position, len(settings))
        return made(settings[number], turn, str(position), f"member-{position}")

    def of_seed(turn: int) -> Training[TrainedModel | None]:
        return made(settings[0], turn, f"seed-{turn}", f"seed-{turn}")

    positions = positions_in_time(run, tuned, size, most, minutes)
    members = _all_of(run, [of_position(position) for position in positions]) if positions else []
    if not members:  # without a member there is no model
        return [_member(_past(run, minutes, settings[0]), settings[0], 0, "0", "member-0")]
    if size == 1 or run.should_stop():
        return members
    trained = sum(member.trial is None for member in members)
    seeds_taken = math.ceil(size / len(settings))
    spared = max(0, trainings_after(run.request) - trained)
    done = sum(is_done(run, f"seed-{turn}") for turn in range(seeds_taken, seeds_taken + spared))
    more = range(seeds_taken, seeds_taken + int(min(spared, done + minutes.room_for(tuned.best.seconds))))
    return [*members, *(_all_of(run, [of_seed(turn) for turn in more]) if more else [])]


def trainings_after(request: TrainRequest) -> int:
    """Return the maximum number of training runs of members after a search; the search reserves their time."""
    is_alone = request.ensemble.ensemble_size == 1 or request.ensemble.ensemble_of is EnsembleOf.CHAMPIONS
    return 0 if is_alone else members_to_train(request)


def _past(run: RunContext, minutes: Minutes, setting: Setting) -> RunContext:
    """Return the context with a time limit: the search minutes, but at least the seconds of the setting's trial."""
    return run.within(time_limit(run.stop.clock, PAST_MINUTES, setting.seconds, minutes.exhausted))


def _all_of(run: RunContext, trainings: Sequence[Training[TrainedModel | None]]) -> list[TrainedModel]:
    """Execute training runs one after the other, or in parallel if the selector chooses so."""
    most = run.request.search.trials_at_a_time
    if most == 1 or len(trainings) == 1 or run.processes > 1:
        return [one for training in trainings if (one := training()) is not None]
    placement = run.decision.placement
    advice = trainings_at_a_time(
        run.decision,
        placement,
        len(trainings),
        epochs=run.request.longest_epochs,
        most=most,
        left_joules=run.budget.left_joules,
    )
    announce(advice.reason)
    open_run(run.run_id).set_tags({"ensemble.trainings_at_a_time": advice.reason})
    trained = side_by_side(trainings, placement, advice.chosen.count, run.cluster)
    return [one for one in trained if one is not None]


def side_by_side(
    trainings: Sequence[Training[Result_co]], placement: Placement, count: int, place: ComputeTarget | None
) -> list[Result_co]:
    """Run training runs, at most `count` in parallel; return their results in order.

    Args:
        trainings: Functions that train; if several run in parallel, each receives a compute target.
        placement: Placement of one training run.
        count: Number of parallel training runs.
        place: Machines that train instead of this one.
    """
    if count == 1:
        return [training() for training in trainings]
    with open_executors(placement, count, place) as executors:
        free: SimpleQueue[Executor] = SimpleQueue()
        for executor in executors:
            free.put(executor)

        def run(training: Training[Result_co]) -> Result_co:
            executor = free.get()
            try:
                return training(place=One(executor))
            finally:
                free.put(executor)

        with ThreadPoolExecutor(count, thread_name_prefix="member") as threads:
            running = [threads.submit(copy_context().run, run, training) for training in trainings]
            return [one.result() for one in running]


def _train_snapshots(run: RunContext, tuned: TuneResult, minutes: Minutes) -> list[TrainedModel]:
    """Train the best setting once with several cosine cycles; return snapshots, best epoch and the model of the search.

    The training has as many epochs as the trial of the setting, so that all snapshots together cost as much as one
    member. If the minutes leave no time for it, only the model of the search is returned.
    """
    setting, size = tuned.winners[0], run.request.ensemble.trained
    job, placement, expected = planned(run, setting, 0)
    found = _adopted(run, setting, job, run.directory / "members" / "0", "member-0")
    if found and not is_done(run, "cycles") and not minutes.room_for(setting.seconds):
        return [found]
    run = run.within(minutes.exhausted) if found else _past(run, minutes, setting)
    epochs = len(found.history) if found else run.request.longest_epochs
    cycles = min(size, epochs)
    if cycles < 2:
        return [found or train_one(run, job, placement, expected, run.directory / "members" / "0", name="member-0")]
    length = epochs // cycles * cycles
    along = replace(
        job,
        hyperparameters=replace(
            job.hyperparameters, learning_rate_schedule="cosine", cosine_epochs=None, cycles=cycles
        ),
        schedule=replace(job.schedule, max_epochs=length, patience=length),
    )
    once = train_one(run, along, placement, expected, run.directory / "members" / "cycles", name="cycles")
    return [*([found] if found else []), once, *snapshots_of(once)]


def _member(  # noqa: PLR0917
    run: RunContext, setting: Setting, turn: int, folder: str, name: str, place: ComputeTarget | None = None
) -> TrainedModel:
    """Train a setting with the request's seed plus `turn`, or return the model of a trial with the same seed."""
    job, placement, expected = planned(run, setting, turn)
    directory = run.directory / "members" / folder
    adopted = _adopted(run, setting, job, directory, name) if turn == 0 else read_finished(TrainedModel, directory, job)
    if adopted or place is None:
        return adopted or train_one(run, job, placement, expected, directory, name=name)
    return train_model(
        job,
        placement,
        directory,
        name=name,
        parent_run_id=run.run_id,
        should_stop=run.should_stop,
        place=place,
        checkpoints=run.checkpoints,
        is_shown=False,
    )


def planned(run: RunContext, setting: Setting, turn: int) -> tuple[ClickJob, Placement, Expectation]:
    """Return the job of a setting with the request's seed plus `turn`, its placement, expected duration and cost."""
    request, dataset = run.request, run.dataset
    chosen = setting.placement or run.decision.placement
    placement = chosen.model_copy(update={"processes": run.processes})
    profile = next(profile for profile in run.profiles if profile.accelerator.name == placement.accelerator)
    expected = expect(dataset, setting.spec, placement, profile, run.decision.observations)
    schedule = Schedule(
        max_epochs=request.longest_epochs,
        patience=read_overrides(request.model, request.architecture.settings).patience or PATIENCE,
        seed=request.seed + turn,
        select_by=request.training.select_by.value,
    )
    job = TrainingJob(dataset, setting.spec, setting.hyperparameters, execution_of(placement), schedule)
    return job, placement, expected


def _adopted(run: RunContext, setting: Setting, job: ClickJob, directory: Path, name: str) -> TrainedModel | None:
    kept = stored_trial_model(run.search_directory, setting.trial_number)
    return adopt_trial(kept, job, directory, name=name, parent_run_id=run.run_id)


def train_one(
    run: RunContext, job: ClickJob, placement: Placement, expected: Expectation, directory: Path, *, name: str
) -> TrainedModel:
    """Execute a planned training run to its end; return a finished one at once."""
    fixed_threads = run.request.training.fixed_threads or run.cluster is not None
    # Tables in files are divided by rows, without a plan.
    is_planned = run.processes > 1 and placement.embedding_memory_bytes is None
    planned = planner().training(run, job, placement) if is_planned else None
    interval, adaptation = expected.prediction.step_seconds_interval, None
    if interval is not None and not fixed_threads:
        most = cores_reserved_here() or usable_cores()  # the other cores are leased to other processes
        choices = [choice for choice in alternatives(run.decision, placement) if choice.threads <= most]
        if len(choices) > 1:
            adaptation = Adaptation(placement, interval, choices, decide=partial(redecide, run.decision))
    trained = train_member(
        job,
        placement,
        directory,
        name=name,
        parent_run_id=run.run_id,
        should_stop=run.should_stop,
        adaptation=adaptation,
        place=planned.place if planned else run.cluster or run.better,
        expected=expected,
        checkpoints=run.checkpoints,
    )
    if planned is not None:
        planner().keep_step(run, planned, trained)
    return trained


def scoring_placement(placement: Placement) -> Placement:
    """Return the placement that scores finished models: that of their training, or this machine's CPU for a node."""
    if placement.node is None:
        return placement
    return placement.model_copy(update={"accelerator": "cpu", "threads": usable_cores(), "precision": "fp32"})


def distil(
    run: RunContext, tuned: TuneResult, members: Sequence[TrainedModel], placement: Placement
) -> list[TrainedModel]:
    """Train the best setting on the predictions of the ensemble of all members, if requested or likely useful.

    The teacher is the ensemble that would be selected without limits on prediction cost and memory.

    Returns:
        The distilled model; empty if it is not requested, if the best result is a single model, or if a limit of the
        run is reached.
    """
    wanted, limits = run.request.ensemble.distill, EnsembleLimits.of(run.request.ensemble)
    is_limited = limits.memory_bytes is not None or limits.serving.is_set
    if run.dataset.features.number is not None:  # labels that are numbers are not mixed with probabilities
        return []
    if wanted is Distill.NEVER or (wanted is Distill.AUTO and not is_limited) or run.cluster or run.should_stop():
        return []
    combining = Combining(
        run.dataset, members, placement, run.request.seed, run.request.training.select_by.value, limits
    )
    selection = combining.selection(range(len(members)), limits.most)
    if not selection.is_ensemble:
        return []
    if wanted is Distill.AUTO:  # not needed if the uncompressed ensemble keeps the limits
        costs = [combining.scored[index][1] for index in selection.chosen]
        stored = sum((members[index].directory / WEIGHTS).stat().st_size for index in selection.chosen)
        is_small = limits.memory_bytes is None or stored + FILE_OVERHEAD_BYTES <= limits.memory_bytes
        if is_small and limits.serving.are_kept_by(costs):
            return []
    teacher = run.directory / "teacher"
    combining.save(selection, teacher)
    model = load_to_score(teacher, combining.execution)
    data = softened(run.dataset, teacher, model, combining.execution, run.directory / "softened")
    job, where, expected = planned(run, tuned.winners[0], 0)
    job = replace(job, dataset=data)
    return [train_one(run, job, where, expected, run.directory / "members" / DISTILLED, name=DISTILLED)]
