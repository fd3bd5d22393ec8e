"""The members of the ensemble: the best settings, trained to the end."""

from functools import partial

from engine.config import Schedule
from engine.execution import execution_of
from engine.executors.adaptation import Adaptation
from engine.fixed import read_fixed
from engine.job import TrainingJob
from engine.trained_model import TrainedModel
from hardware.devices.discovery import usable_cores
from hardware.types import Placement
from planner.decide import Decision
from planner.predict.observe import Expectation, expect
from planner.redecide import alternatives, redecide
from search.result import TuneResult
from search.study.kept import kept_model
from tasks.run_context import RunContext
from tasks.train import adopt_trial, train_member

PATIENCE = 2  # epochs without a better validation NE


def train_members(run: RunContext, tuned: TuneResult) -> list[TrainedModel]:
    """The best settings, trained to the end; when settings are few, they take turns, each time from another seed.

    In the first turn the seed is the search's, so that a trial which came to its end is a member as it is.
    """
    request, dataset = run.request, run.dataset
    members = []
    patience = read_fixed(request.model, request.architecture.set).patience or PATIENCE
    placement = run.decision.placement.model_copy(update={"processes": request.training.processes})
    profile = next(profile for profile in run.profiles if profile.accelerator.name == placement.accelerator)
    for position in range(request.ensemble.ensemble_size):
        setting = tuned.winners[position % len(tuned.winners)]
        if members and run.should_stop():
            break  # the first member is trained whatever is left: without it there is no model
        fixed_threads = request.training.fixed_threads or run.cluster is not None
        expected = expect(dataset, setting.spec, placement, profile, run.decision.observations)
        adaptation = None if fixed_threads else _adaptation(expected, placement, run.decision)
        turn = position // len(tuned.winners)
        schedule = Schedule(
            max_epochs=request.training.max_epochs,
            patience=patience,
            seed=request.seed + turn,
            select_by=request.training.select_by.value,
        )
        job = TrainingJob(dataset, setting.spec, setting.hyperparameters, execution_of(placement), schedule)
        directory, name = run.directory / "members" / str(position), f"member-{position}"
        kept = kept_model(run.search_directory, setting.trial_number) if turn == 0 else None
        adopted = adopt_trial(kept, job, directory, name=name, parent_run_id=run.run_id)
        if adopted is not None:
            members.append(adopted)
            continue
        member = train_member(
            job,
            placement,
            directory,
            name=name,
            parent_run_id=run.run_id,
            should_stop=run.should_stop,
            adaptation=adaptation,
            place=run.cluster,
            expected=expected,
        )
        members.append(member)
    return members


def scoring_placement(placement: Placement) -> Placement:
    """Where the finished models are scored: the placement they were trained at, or this machine's processor."""
    if placement.node is None:
        return placement
    return placement.model_copy(update={"accelerator": "cpu", "threads": usable_cores(), "precision": "fp32"})


def _adaptation(expected: Expectation, placement: Placement, decision: Decision) -> Adaptation | None:
    """What lets the threads follow the measured steps; None where nothing says how long these should take."""
    interval = expected.prediction.step_seconds_interval
    choices = alternatives(decision, placement)
    if interval is None or len(choices) < 2:
        return None
    return Adaptation(placement, interval, choices, decide=partial(redecide, decision))
