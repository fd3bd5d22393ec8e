"""Training runs of graph models: the search over their settings, the baselines, and the final training.

A resumed run finds finished training runs in its folders: the search proposes the same settings again and skips the
finished ones (`shunter.search.ranking`).
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from shunter.engine.checkpoint.checked_files import CHOICES
from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.metrics import FIGURES
from shunter.engine.overrides import read_overrides
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.fusion import Fusion
from shunter.engine.ranking.interactions import check_order, read_graph, sides
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.solver import check_solvable
from shunter.engine.stopping import JOB, ShouldStop, StopKind, StopLimit, StopReason
from shunter.errors import TooLargeError, TrainingError
from shunter.hardware.types import Placement
from shunter.model_families import is_solved
from shunter.models.graph import GraphSpec, graph_spec, learned_model, learns_in_steps
from shunter.planner.predict.observe import expect
from shunter.reporting.card.ranking_baselines import RankedBaseline
from shunter.requests import TrainRequest, baselines_of
from shunter.search.minutes import Minutes, unlimited
from shunter.search.protocol import Outcome, Parameters
from shunter.search.ranking import RankingSearch, RankingSpace
from shunter.tasks.baselines.kept import UNTIMED_ENDS, BaselineChoice, digest_key, keep, reuse
from shunter.tasks.card.ranking import write_ranking_card
from shunter.tasks.ensemble import reserve_ending
from shunter.tasks.evidence import record_trainings
from shunter.tasks.fusion import WHOLE, fuse
from shunter.tasks.recipes import Recipe, TrainingOutcome
from shunter.tasks.register import register_ranker
from shunter.tasks.run_context import RunContext
from shunter.tasks.run_log import log_outcome
from shunter.tasks.step_clock import StepClock
from shunter.tasks.train import train_member
from shunter.tracking.callbacks import CalledTraining, call_on_trial
from shunter.tracking.convention import RunKind
from shunter.tracking.evidence import PairedTrial
from shunter.tracking.registry.ranker_origins import ranker_tags
from shunter.tracking.runs import open_run

log = logging.getLogger(__name__)

PATIENCE = 3  # epochs without an improvement of the ranking on the validation part


@dataclass(frozen=True)
class Purpose:
    """Kind, name and stop condition of a group of training runs."""

    kind: RunKind
    name: str
    should_stop: ShouldStop


@dataclass
class Tried:
    """Results of the settings of one family."""

    trained: list[TrainedRanker] = field(default_factory=list)
    stop_reason: StopReason | None = None

    @property
    def best(self) -> TrainedRanker:
        """Return the model that ranks the validation part best."""
        return best_of(self.trained)


def best_of(trained: list[TrainedRanker]) -> TrainedRanker:
    """Return the model that ranks the validation part best; the first one of equal models."""
    return max(trained, key=lambda one: one.validation.figure_by(one.schedule.select_by))


def try_settings(run: RunContext, minutes: Minutes | None = None) -> Tried:
    """Search the settings of the requested model, within the limits on trials, minutes and kilowatt hours.

    A running trial is stopped when the remaining minutes are only enough to train the best setting again and to finish
    the command.
    """
    request = run.request
    space = RankingSpace(request.model, read_overrides(request.model, request.architecture.settings))
    options, minutes = request.search, minutes or unlimited()

    def ended(tried: Tried) -> StopReason | None:
        again = tried.best.train_seconds if tried.trained else 0.0  # the best setting is trained again
        if minutes.left_of_command_seconds <= again:
            return minutes.used_up
        joules = sum(one.energy.joules or 0.0 for one in tried.trained)
        if options.search_kwh is not None and joules >= 3.6e6 * options.search_kwh:
            return StopReason(StopKind.SEARCH_BUDGET, StopLimit.ENERGY, {"kwh": options.search_kwh})
        return run.should_stop()

    first = run.pairing and run.pairing.limit(run.stop.clock, None)
    purpose = Purpose("trial", "trial", lambda: first() if first else None)
    tried = _try(run, space, options.most_trials, purpose, ended=ended)
    return _with_pair(run, tried, ended)


def _with_pair(run: RunContext, tried: Tried, ended: Callable[[Tried], StopReason | None]) -> Tried:
    """Train the best setting also at the placement that the run explores, if any; see `shunter.search.study.pair`."""
    pairing, best = run.pairing, tried.best
    was_stopped = best.stop_reason.is_exploration
    if (
        pairing is None
        or is_solved(best.spec.family)
        or ended(tried)
        or (pairing.first_seconds is not None and not was_stopped)
    ):
        return tried
    elsewhere = run.at(pairing.placement)
    bound = None if was_stopped else pairing.bound(run.stop.clock, best.train_seconds)
    purpose = Purpose("trial", "trial-pair", lambda: ended(tried) or (bound() if bound else None))
    job = _job(elsewhere, best.spec, best.hyperparameters, best.schedule)
    with suppress(TrainingError, TooLargeError):
        other = _train(elsewhere, job, purpose)
        tried.trained.append(other)
        run.notes.pair = _compared(best, other, was_stopped=was_stopped)
    return tried


def _compared(first: TrainedRanker, second: TrainedRanker, *, was_stopped: bool) -> PairedTrial | None:
    """Return the comparison of a run of the search with one at the other placement; None without epochs or time."""
    # If the time limit of the exploration stopped the run of the search, that run is the exploring one.
    one, other = (second, first) if was_stopped else (first, second)
    if not (one.history and other.history and one.train_seconds and other.train_seconds):
        return None
    return PairedTrial(
        placement=other.placement,
        beside=one.placement,
        seconds=other.train_seconds,
        seconds_ratio=other.train_seconds / one.train_seconds,
        epochs_ratio=len(other.history) / len(one.history),
        is_stopped=other.stop_reason.is_exploration,
    )


def train_rankers(run: RunContext) -> list[RankedBaseline]:
    """Train the baselines: for each family the settings that the search tries first; return the best of each.

    A baseline that an earlier run has trained on the same data, with the same settings and code, is reused. Baselines
    that do not fit into memory or into the limits of the run are left out. The time limit of an exploration does not
    count for them.
    """
    found = []
    for family in baselines_of(run.request):
        if family == run.request.model:
            continue
        space = RankingSpace(family)
        choice_path = run.directory / "rankers" / f"{family}{CHOICES.removeprefix('*')}"
        choice = BaselineChoice.read(choice_path)
        key = _key(run, space)
        stored = reuse(key, RankedBaseline) if choice is None or choice.reused_of is not None else None
        if stored is not None:
            BaselineChoice(reused_of=stored.model.placement).save(choice_path)
            found.append(stored)
            continue
        if run.baseline_stop.check():
            continue
        spec = space.build(space.first()[0])[0]
        try:
            check_solvable(spec, read_graph(run.dataset), torch.device("cpu"))
        except TooLargeError as error:
            log.warning("The baseline %s is left out: %s", family, error)
            continue
        purpose = Purpose("baseline", family, run.baseline_stop.check)
        BaselineChoice().save(choice_path)
        tried = _try(run, space, len(space.first()), purpose, ended=lambda _: run.baseline_stop.check())
        found.append(retrain_best(run, tried, purpose))
        ends = [one.stop_reason.kind in UNTIMED_ENDS for one in tried.trained]
        if len(ends) == len(space.first()) and all(ends) and found[-1].model is not tried.best:
            keep(key, found[-1], run.dataset)
    return found


def _key(run: RunContext, space: RankingSpace) -> str:
    """Return the digest of the training runs of a baseline; a family without steps does not depend on the placement."""
    points = [[asdict(part) for part in space.build(point)] for point in space.first()]
    batch_size = None if is_solved(space.family) else run.decision.placement.batch_size
    schedule = asdict(_schedule(run, space))
    return digest_key(run.dataset.fingerprint, space.family, points, schedule, batch_size)


def retrain_best(run: RunContext, tried: Tried, purpose: Purpose, *, is_asked: bool = False) -> RankedBaseline:
    """Train the best setting of a family on validation too; return the model with seconds and joules of all runs."""
    kept = retrain_with_validation(run, tried.best, purpose)
    trained = [*tried.trained, kept] if kept is not tried.best else tried.trained
    joules = [one.energy.joules for one in trained if one.energy.joules is not None]
    return RankedBaseline(
        model=kept,
        chosen=tried.best,
        is_asked=is_asked,
        tried=len(tried.trained),
        train_seconds=sum(one.train_seconds for one in trained),
        joules=sum(joules) if len(joules) == len(trained) else None,
    )


def retrain_with_validation(run: RunContext, chosen: TrainedRanker, purpose: Purpose) -> TrainedRanker:
    """Train the chosen setting again on the training and validation parts together, for the best number of epochs.

    The model is already selected, so the interactions of the validation part can be used for training, too. If a limit
    is used up or ends the training, the chosen model is returned unchanged.
    """
    if purpose.should_stop():
        return chosen
    schedule = replace(chosen.schedule, max_epochs=chosen.best_epoch, patience=chosen.best_epoch)
    if run.pairing is not None:
        batch_size = chosen.placement.batch_size // chosen.hyperparameters.batch_scale
        run = run.at(chosen.placement.model_copy(update={"batch_size": batch_size}))
    job = replace(_job(run, chosen.spec, chosen.hyperparameters, schedule), learn_validation=True)
    again = _train(run, job, replace(purpose, name=f"{purpose.name}{WHOLE}"))
    if not again.stop_reason.is_scheduled:
        return chosen
    return again.model_copy(update={"validation": chosen.validation})


def _try(
    run: RunContext,
    space: RankingSpace,
    trials: int | None,
    purpose: Purpose,
    *,
    ended: Callable[[Tried], StopReason | None],
) -> Tried:
    """Train settings until there are enough trials or the search ends; at least one setting is trained."""
    schedule = _schedule(run, space)
    select_by = schedule.select_by
    search, tried = RankingSearch(space, trials, seed=schedule.seed), Tried()
    failure: Exception | None = None
    for number in range(trials or 10**6):
        tried.stop_reason = ended(tried) if tried.trained else None
        point = None if tried.stop_reason else search.ask()
        if point is None:
            break
        spec, rates = space.build(point)
        qualities: list[float] = []

        def note(report: Any, qualities: list[float] = qualities) -> None:
            qualities.append(report.validation.figure_by(select_by))

        def stop(qualities: list[float] = qualities) -> StopReason | None:
            if search.is_beaten(qualities):
                return StopReason(StopKind.PRUNED, details={"epochs": float(len(qualities))})
            return purpose.should_stop() or ended(tried)

        one = Purpose(purpose.kind, f"{purpose.name}-{number}", stop)
        try:
            trained = _train(run, _job(run, spec, rates, schedule), one, watch=note)
        except (TrainingError, TooLargeError) as error:
            failure = error
            search.tell([0.0])
            _call_on_trial(one, point, None)
            continue
        search.tell([report.validation.figure_by(select_by) for report in trained.history])
        tried.trained.append(trained)
        _call_on_trial(one, point, trained)
    if not tried.trained:
        raise failure or TrainingError("The limits left no time to try a setting: raise them.")
    return tried


def _call_on_trial(purpose: Purpose, point: Parameters, trained: TrainedRanker | None) -> None:
    """Call the callbacks after a trial, with None if it failed; training runs of baselines do not count as trials."""
    if purpose.kind != "trial":
        return
    outcome = Outcome(state="failed")
    if trained is not None:
        outcome = Outcome(
            state="pruned" if trained.stop_reason.kind is StopKind.PRUNED else "complete",
            selected=1 - trained.validation.figure_by(trained.schedule.select_by),
            seconds=trained.train_seconds,
            joules=trained.energy.joules,
            epochs=float(len(trained.history)),
        )
    run = open_run(trained.run_id) if trained and trained.run_id else None
    call_on_trial(CalledTraining(purpose.name, purpose.kind, run), point, outcome)


def _schedule(run: RunContext, space: RankingSpace) -> Schedule:
    request = run.request
    return Schedule(
        max_epochs=request.longest_epochs,
        patience=space.overrides.patience or PATIENCE,
        seed=request.seed,
        select_by=request.training.select_by.value,
        repeats=request.training.repeats.value,
    )


def _job(run: RunContext, spec: GraphSpec, rates: RankingHyperparameters, schedule: Schedule) -> TrainingJob:
    return TrainingJob(run.dataset, spec, rates, execution_of(_placement(run, spec, rates)), schedule)


def _placement(run: RunContext, spec: GraphSpec, rates: RankingHyperparameters) -> Placement:
    """Return the placement of a setting with its batch size; on a cluster, closed-form models use the local CPU."""
    placement = run.decision.placement
    if run.cluster is not None and is_solved(spec.family):
        placement = placement.model_copy(update={"accelerator": "cpu"})
    return placement.model_copy(update={"batch_size": placement.batch_size * rates.batch_scale})


def _train(
    run: RunContext, job: TrainingJob, purpose: Purpose, *, watch: Callable[[Any], None] | None = None
) -> TrainedRanker:
    placement = _placement(run, job.spec, job.hyperparameters)
    has_steps, named = not is_solved(job.spec.family), run.decision.placement.accelerator
    profile = next(profile for profile in run.profiles if profile.accelerator.name == named)
    return train_member(
        job,
        placement,
        run.directory / "rankers" / purpose.name,
        name=purpose.name,
        parent_run_id=run.run_id,
        run_kind=purpose.kind,
        should_stop=purpose.should_stop,
        checkpoints=run.checkpoints,
        place=run.cluster if has_steps and run.cluster is not None else run.better,
        expected=expect(run.dataset, job.spec, placement, profile, run.decision.observations) if has_steps else None,
        watch=watch,
    )


RANKER = "ranker"


class RankerRecipe(Recipe):
    """Recipe of graph models: search settings, train the best one on validation too, and combine it with baselines."""

    def check(self, request: TrainRequest, dataset: Dataset) -> None:
        """Raise if the data or the memory does not suffice for the model.

        Raises:
            RequestError: The schema names no user and item, the data lacks the row order that the model reads, or
                a model solved in closed form needs more memory.
        """
        super().check(request, dataset)
        sides(dataset)
        if learns_in_steps(request.model) and learned_model(request.model).reads_order:
            check_order(dataset)
        if is_solved(request.model):
            spec = graph_spec(
                request.model, **read_overrides(request.model, request.architecture.settings).architecture
            )
            check_solvable(spec, read_graph(dataset), torch.device("cpu"))

    def train(self, run: RunContext, clock: StepClock) -> TrainingOutcome:
        """Train baselines, search settings, train the best ones again, combine them, and register the best ranker."""
        request = run.request
        minutes = Minutes.of(request.search, run.stop.clock, of_command=True, budget=run.budget)
        reserve_ending(minutes, run, clock)
        with clock.step("baselines"):
            baselines = train_rankers(run)
        joules_before = run.budget.joules
        with clock.step("tune"), run.stop.clock.counting(JOB):
            tried = try_settings(run, minutes)
        # The requested model is trained again like the baselines, even if one is better.
        with clock.step("train"), run.stop.clock.counting(JOB):
            within = run.within(minutes.command_exhausted)
            asked = retrain_best(run, tried, Purpose("member", RANKER, within.should_stop), is_asked=True)
            record_trainings(run.notes, [*tried.trained, *([asked.model] if asked.model is not tried.best else [])])
        run.notes.seconds = run.stop.clock.seconds_of(JOB)
        training_joules = run.budget.joules_since(joules_before)
        best = best_of([asked.model, *(baseline.model for baseline in baselines)])
        reason, tags = _why_kept(best, tried, baselines), ranker_tags([best])
        with clock.step("ensemble"):
            if together := fuse(run, [asked, *baselines]):
                best, reason = together[0], _why_fused(*together)
                by_family = {one.model.spec.family: one.model for one in (asked, *baselines)}
                tags = ranker_tags([by_family[name] for name in together[1].members], together[1].by)
        with clock.step("card"):
            best, compared = write_ranking_card(
                run.run_id,
                run.dataset,
                best,
                baselines=baselines if best is asked.model else [*baselines, asked],
                reason=reason,
                learned_validation=best.name.endswith(WHOLE),
            )
        with clock.step("register"):
            registered = register_ranker(request, run.dataset, best, run.run_id, tags=tags)
        log_outcome(best, registered, run.run_id, compared)
        return TrainingOutcome(
            tuned=None,
            tried=tuple(tried.trained),
            stop_reason=tried.stop_reason,
            result=best,
            registered=registered,
            baselines=compared,
            reason=reason,
            training_joules=training_joules,
        )


def _why_kept(best: TrainedRanker, tried: Tried, baselines: Sequence[RankedBaseline]) -> str:
    """Return why this graph model is registered, in one sentence with its metric on validation."""
    count, others = len(tried.trained), len(baselines)
    among = f"{count} setting{'s' if count > 1 else ''}" + (f" and {others} baselines" if others else "")
    is_whole = best.name.endswith(WHOLE)
    again = "; then trained again on the training and validation parts together" if is_whole else ""
    by = "recall@20" if best.schedule.select_by == "recall@20" else "ndcg@20"
    figure = f"{FIGURES[by]} {best.validation.figure_by(by):.4f}"
    return f"{best.spec.family} ranks the validation part best of {among} ({figure}){again}."


def _why_fused(fused: TrainedRanker, fusion: Fusion) -> str:
    """Return why the ensemble of graph models is registered, in one sentence with its gain on validation."""
    by = fused.schedule.select_by if fused.schedule.select_by == "recall@20" else "ndcg@20"
    *others, last = fusion.members
    return (
        f"The ensemble of {', '.join(others)} and {last} (sum of {fusion.by}) ranks the validation part better than "
        f"{others[0]} alone ({FIGURES[by]} {fusion.validation.figure_by(by):.4f}, {fusion.gain:+.4f}, "
        f"{fusion.low:+.4f} to {fusion.high:+.4f} with 95 % confidence)."
    )
