"""The members of the ensemble: the best settings, trained to the end."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from shunter.engine.config import Schedule
from shunter.engine.ensemble.snapshots import snapshots_of
from shunter.engine.execution import execution_of
from shunter.engine.executors.adaptation import Adaptation
from shunter.engine.executors.role import Place
from shunter.engine.fixed import read_fixed
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.stopping import time_limit
from shunter.engine.trained_model import TrainedModel, read_finished
from shunter.hardware.devices.discovery import usable_cores
from shunter.hardware.reservation import cores_held_here
from shunter.hardware.types import Placement
from shunter.planner.decide import Decision
from shunter.planner.describe import members_to_train
from shunter.planner.predict.observe import Expectation, expect
from shunter.planner.redecide import alternatives, redecide
from shunter.planner.together import trainings_at_a_time
from shunter.requests import EnsembleOf, TrainRequest
from shunter.search.minutes import Minutes, unlimited
from shunter.search.result import Setting, TuneResult
from shunter.search.study.kept import kept_model
from shunter.tasks.accelerators import tell
from shunter.tasks.ensemble.room import is_done, positions_with_room
from shunter.tasks.ensemble.side_by_side import Training, side_by_side
from shunter.tasks.run_context import RunContext
from shunter.tasks.train import adopt_trial, train_member, train_to_the_end
from shunter.tasks.training_plans import planner
from shunter.tracking.runs import open_run

PAST_MINUTES = "past the minutes"  # span of the clock: of a training that may go on after the end of the minutes
PATIENCE = 2  # epochs without a better validation NE


def train_members(run: RunContext, tuned: TuneResult, minutes: Minutes | None = None) -> list[TrainedModel]:
    """The best settings, trained to the end; when settings are few, they take turns, each time from another seed.

    In the first turn the seed is the search's, so that a trial which came to its end is a member as it is. The
    trainings that such trials spare, of those that the job was planned with, go to further seeds of the best setting,
    as many as `--search-minutes` leaves time for: of all these the ensemble takes what is best together. Where no size
    of it is asked for, further trials that came to their end are members, too, since they cost no training. With
    `--parallel-trials` so many run side by side at most, and the selector says how many are best.

    Within minutes only those members are trained that these have room for, and what is being trained when they are over
    ends with its best epoch. Only where there is nothing to take over the best setting is trained as long as its trial.

    Args:
        run: The training.
        tuned: The settings.
        minutes: What the search has left, being counted; None where it has all the time.
    """
    minutes = minutes or unlimited()
    if run.request.ensemble.ensemble_of is EnsembleOf.SNAPSHOTS:
        return _train_snapshots(run, tuned, minutes)
    size, most, settings = run.request.ensemble.trained, run.request.ensemble.most, tuned.winners
    if run.request.ensemble.ensemble_of is EnsembleOf.CHAMPIONS:
        size = most = 1
    limited = run.within(minutes.exhausted)

    def made(setting: Setting, turn: int, folder: str, name: str) -> Training[TrainedModel | None]:
        def train(place: Place | None = None) -> TrainedModel | None:
            if minutes.exhausted() and not is_done(run, folder, None if turn else setting):
                return None
            return _member(limited, setting, turn, folder, name, place)

        return train

    def of_position(position: int) -> Training[TrainedModel | None]:
        turn, number = divmod(position, len(settings))
        return made(settings[number], turn, str(position), f"member-{position}")

    def of_seed(turn: int) -> Training[TrainedModel | None]:
        return made(settings[0], turn, f"seed-{turn}", f"seed-{turn}")

    positions = positions_with_room(run, tuned, size, most, minutes)
    members = _all_of(run, [of_position(position) for position in positions]) if positions else []
    if not members:  # without one there is no model
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
    """Most trainings that follow a search, for which its minutes leave time."""
    is_alone = request.ensemble.ensemble_size == 1 or request.ensemble.ensemble_of is EnsembleOf.CHAMPIONS
    return 0 if is_alone else members_to_train(request)


def _past(run: RunContext, minutes: Minutes, setting: Setting) -> RunContext:
    """The run of a training that the end of the minutes ends only when it has been as long as its trial."""
    return run.within(time_limit(run.stop.clock, PAST_MINUTES, setting.seconds, minutes.exhausted))


def _all_of(run: RunContext, trainings: Sequence[Training[TrainedModel | None]]) -> list[TrainedModel]:
    """Trainings one after the other, or as many at a time as the selector finds best of those that may be."""
    return [one for one in _side_by_side(run, trainings) if one is not None]


def _side_by_side(run: RunContext, trainings: Sequence[Training[TrainedModel | None]]) -> list[TrainedModel | None]:
    most = run.request.search.trials_at_a_time
    if most == 1 or len(trainings) == 1 or run.processes > 1:
        return side_by_side(trainings, None, 1, None, run.should_stop)
    placement = run.decision.placement
    advice = trainings_at_a_time(
        run.decision,
        placement,
        len(trainings),
        epochs=run.request.longest_epochs,
        most=most,
        left_joules=run.budget.left_joules,
    )
    tell(advice.words)
    open_run(run.run_id).set_tags({"ensemble.trainings_at_a_time": advice.words})
    return side_by_side(trainings, placement, advice.chosen.count, run.cluster, run.should_stop)


def _train_snapshots(run: RunContext, tuned: TuneResult, minutes: Minutes) -> list[TrainedModel]:
    """The best setting trained once along several cosines: its snapshots, its best epoch, and what the search has left.

    The training is as long as that of its trial, so that all of them cost what one member does. A search's minutes that
    have no room for it leave what the search has.
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
    run: RunContext, setting: Setting, turn: int, folder: str, name: str, place: Place | None = None
) -> TrainedModel:
    """A setting trained from the seed of a turn, or the trial that has done so already."""
    job, placement, expected = planned(run, setting, turn)
    directory = run.directory / "members" / folder
    adopted = _adopted(run, setting, job, directory, name) if turn == 0 else read_finished(TrainedModel, directory, job)
    if adopted or place is None:
        return adopted or train_one(run, job, placement, expected, directory, name=name)
    return train_to_the_end(
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
    """The training of a setting from the seed of a turn, where it runs, and what it is expected to take."""
    request, dataset = run.request, run.dataset
    placement = run.decision.placement.model_copy(update={"processes": run.processes})
    profile = next(profile for profile in run.profiles if profile.accelerator.name == placement.accelerator)
    expected = expect(dataset, setting.spec, placement, profile, run.decision.observations)
    schedule = Schedule(
        max_epochs=request.longest_epochs,
        patience=read_fixed(request.model, request.architecture.set).patience or PATIENCE,
        seed=request.seed + turn,
        select_by=request.training.select_by.value,
    )
    job = TrainingJob(dataset, setting.spec, setting.hyperparameters, execution_of(placement), schedule)
    return job, placement, expected


def _adopted(run: RunContext, setting: Setting, job: ClickJob, directory: Path, name: str) -> TrainedModel | None:
    kept = kept_model(run.search_directory, setting.trial_number)
    return adopt_trial(kept, job, directory, name=name, parent_run_id=run.run_id)


def train_one(
    run: RunContext, job: ClickJob, placement: Placement, expected: Expectation, directory: Path, *, name: str
) -> TrainedModel:
    """A training as planned, to its end; a finished one is returned at once."""
    fixed_threads = run.request.training.fixed_threads or run.cluster is not None
    # Tables in files are divided by row, without a plan.
    is_planned = run.processes > 1 and placement.embedding_memory_bytes is None
    planned = planner().training(run, job, placement) if is_planned else None
    trained = train_member(
        job,
        placement,
        directory,
        name=name,
        parent_run_id=run.run_id,
        should_stop=run.should_stop,
        adaptation=None if fixed_threads else _adaptation(expected, placement, run.decision),
        place=planned.place if planned else run.cluster or run.better,
        expected=expected,
        checkpoints=run.checkpoints,
    )
    if planned is not None:
        planner().keep_step(run, planned, trained)
    return trained


def scoring_placement(placement: Placement) -> Placement:
    """Where the finished models are scored: the placement they were trained at, or this machine's processor."""
    if placement.node is None:
        return placement
    return placement.model_copy(update={"accelerator": "cpu", "threads": usable_cores(), "precision": "fp32"})


def _adaptation(expected: Expectation, placement: Placement, decision: Decision) -> Adaptation | None:
    """What lets the threads follow the measured steps; None where nothing says how long these should take."""
    interval = expected.prediction.step_seconds_interval
    most = cores_held_here() or usable_cores()  # the others are leased to others
    choices = [choice for choice in alternatives(decision, placement) if choice.threads <= most]
    if interval is None or len(choices) < 2:
        return None
    return Adaptation(placement, interval, choices, decide=partial(redecide, decision))
