"""Nightly run with a ranking champion: retrain its members on the newest days, and compare on the evaluation day.

A graph model needs all interactions in its graph. A challenger is therefore trained on all usable days before the
evaluation day, not only on the new days. Members that are trained in steps start from the champion's vectors; new users
and items start from random vectors in larger tables. Members with a closed-form solution are solved again.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from shunter.engine.checkpoint.warm_start import SharedRows
from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.ranking.interactions import sides
from shunter.engine.ranking.result import TrainedRanker
from shunter.errors import RequestError
from shunter.ingestion.cache import forget
from shunter.model_families import is_solved
from shunter.planner.predict.observe import expect
from shunter.reporting.card.ranking_baselines import RankedBaseline, evaluate_on_test
from shunter.requests import Promote
from shunter.retraining.challenger import (
    NightlyContext,
    changed_meanwhile,
    record_version,
    reserve_placement,
    why_nothing_new,
)
from shunter.retraining.champion import Champion, check_same_log, version_tags, warm_start_from
from shunter.retraining.degradation import ranking_degradation_of, respond
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.nightly_runs import NightlyResult, Outcome, log_plan
from shunter.retraining.nightly_steps import evaluate_ranking_challenger, ingest_days
from shunter.tasks.evidence import record_trainings
from shunter.tasks.fusion import fused_of
from shunter.tasks.register import doubt_of_ranker, register
from shunter.tasks.run_context import exploration_limit
from shunter.tasks.train import train_member
from shunter.tracking.convention import data_params
from shunter.tracking.evidence import data_key
from shunter.tracking.ranking import ranking_metrics
from shunter.tracking.registry.ranker_comparison import RankingComparison
from shunter.tracking.registry.ranker_origins import RankerOrigins, challenger_tags, origins_of
from shunter.tracking.runs import open_run


def check_ranking_request(request: NightlyRequest) -> None:
    """Raise if the request has options that a graph model does not support.

    Raises:
        RequestError: The request has such an option.
    """
    if request.challenger.learn_last_day:
        raise RequestError(
            "A ranking model cannot be evaluated after it learned the last day, because no later day is "
            "left: leave out --learn-last-day. The next nightly run trains on that day."
        )
    if request.limits.min_auc is not None:
        raise RequestError("A ranking model predicts no probability and has no such AUC: leave out --min-auc.")


def challenge_ranker(context: NightlyContext, champion: Champion) -> NightlyResult:
    """Train a challenger with members like the champion's, and compare both on the evaluation day by NDCG@20.

    Raises:
        RequestError: The request has an option that a graph model does not support, the champion was trained on other
            data, or its hyperparameters are not recorded.
        DataError: No user that both models know has an interaction on the evaluation day.
    """
    request, plan, number = context.request, context.plan, champion.version.version
    check_ranking_request(request)
    log_plan(context.run_id, request.registered_name, plan, plan.training)
    check_same_log(champion, context.logs[plan.held_out].schema, request.registered_name)
    new = [day for day in plan.training if request.days.relearn or day not in champion.learned]
    if reason := why_nothing_new(plan, champion, new):
        return context.ends("nothing new", reason, number)
    origins = origins_of(champion.version)
    logs = [context.logs[day] for day in (*plan.training, plan.held_out)]
    dataset = ingest_days(request, logs, held_out=plan.held_out, base=champion.files)
    params = data_params(dataset)
    open_run(context.run_id).log_params(params)
    context.notes.data = data_key(params)
    challenger = _train(context, dataset, champion, origins)
    evaluate = partial(
        evaluate_ranking_challenger, request, dataset, champion.files, challenger.directory, repeats=origins.repeats
    )
    comparison = context.compared("judgement", RankingComparison, evaluate)
    degradation = ranking_degradation_of(comparison, champion.version, plan.held_out)
    obstacle = _obstacle(context, number, comparison, challenger)
    outcome: Outcome = "promoted" if obstacle is None else "kept"
    context.draw("judgement", comparison, outcome)
    if obstacle is not None:
        forget(dataset)
        night = context.ends(outcome, obstacle, number, comparison=comparison)
        return respond(night, degradation, request.registered_name, request.promotion.when_broken)
    registered = register(
        context.run_id,
        dataset,
        challenger.directory,
        request.registered_name,
        metrics={name: float(value) for name, value in ranking_metrics(challenger.test, "test").items()},
        tags={**version_tags(sorted({*champion.learned, *plan.training}), None), **challenger_tags(origins)},
    )
    overtaken = "" if comparison.is_better else " The champion ranks no better than the items' popularity any more."
    reason = f"Version {registered.version} replaces version {number}: {comparison.explain()}{overtaken}"
    record_version(context, registered, context.run_id, reason)
    forget(dataset)
    night = context.ends(outcome, reason, registered.version, comparison=comparison, registered=registered.version)
    return respond(night, degradation, request.registered_name, request.promotion.when_broken)


def _train(context: NightlyContext, dataset: Dataset, champion: Champion, origins: RankerOrigins) -> TrainedRanker:
    """Train every member with the same placement, and combine the members; an interrupted training run is resumed."""
    slowest = next((one for one in origins.members if not is_solved(one.spec.family)), origins.members[0])
    placing = context.request.one_training().model_copy(update={"model": slowest.spec.family})
    shared = warm_start_from(champion.files, 0, dataset)
    known = sum(len(shared.rows[name].now) - 1 for name in sides(dataset) if name in shared.rows)
    if not known:
        raise RequestError(
            f"The champion of {context.request.registered_name!r} was trained on other data, since it "
            "knows no user or item of these days: name another model with --register-as, and the first "
            "nightly run trains it."
        )
    trained = []
    with reserve_placement(context, dataset, placing) as (decision, profile):
        stop = context.stop.also(exploration_limit(context.stop.clock, decision))
        for origin in origins.members:
            rates, epochs, solved = origin.hyperparameters, origin.epochs, is_solved(origin.spec.family)
            if not solved:
                challenger = context.request.challenger
                rates = replace(rates, learning_rate=rates.learning_rate * challenger.learning_rate_share)
                epochs = challenger.nightly_epochs
            placement = decision.placement.model_copy(
                update={"batch_size": decision.placement.batch_size * rates.batch_scale}
            )
            trained.append(
                train_member(
                    TrainingJob(
                        dataset,
                        origin.spec,
                        rates,
                        execution_of(placement),
                        Schedule(
                            max_epochs=epochs, patience=epochs, seed=context.request.seed, repeats=origins.repeats
                        ),
                        warm_start=None if solved else warm_start_from(champion.files, origin.member, dataset),
                        learn_validation=True,
                    ),
                    placement,
                    context.state.directory / "rankers" / f"challenger-{origin.member}",
                    name=f"challenger-{origin.member}",
                    parent_run_id=context.run_id,
                    should_stop=stop.check,
                    expected=None
                    if solved
                    else expect(dataset, origin.spec, placement, profile, decision.observations),
                )
            )
    record_trainings(context.notes, trained)
    open_run(context.run_id).set_tags({"nightly.challenger_origin": _origin_as_text(origins, shared.rows, dataset)})
    if origins.by is None:
        return evaluate_on_test(dataset, trained[0])[0]
    members = [
        RankedBaseline(model=one, chosen=one, tried=1, train_seconds=one.train_seconds, joules=one.energy.joules)
        for one in trained
    ]
    folder = context.state.directory / "rankers" / "challenger"
    return evaluate_on_test(dataset, fused_of(folder, origins.by, members, trained[0].validation))[0]


def _origin_as_text(origins: RankerOrigins, rows: Mapping[str, SharedRows], dataset: Dataset) -> str:
    """Return a sentence about what the challenger reuses of the champion."""
    sizes = {field.name: field.rows - 1 for field in dataset.features.categorical}
    names = [name for name in sides(dataset) if name in rows]
    known = [f"{len(rows[name].now) - 1:,} of {sizes[name]:,} values of {name}" for name in names]
    learned = [one.spec.family for one in origins.members if not is_solved(one.spec.family)]
    how = f"{' and '.join(learned)} begins at the champion's vectors" if learned else "all of it is solved anew"
    return f"The champion knows {' and '.join(known)}; {how}."


def _obstacle(
    context: NightlyContext, number: int, comparison: RankingComparison, challenger: TrainedRanker
) -> str | None:
    """Return the reason why the challenger does not replace the champion, in one sentence; None if it does."""
    doubt = doubt_of_ranker(challenger.gain)
    is_overtaken = comparison.is_overtaken and doubt is None
    if not comparison.is_better and not is_overtaken:
        return f"Version {number} stays the champion: {comparison.explain()}"
    if doubt is not None and context.request.promotion.promote != Promote.ALWAYS:
        return (
            f"Version {number} stays the champion: the challenger is better, but {doubt}; with --promote always it "
            "would take the place."
        )
    return changed_meanwhile(context, number)
