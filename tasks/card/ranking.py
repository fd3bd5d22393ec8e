"""Model card of a graph model, with its baselines, as files of the run and as metrics in MLflow."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.trainer import RankingData
from shunter.reporting.card.ranking_baselines import (
    RankedBaseline,
    RankingBaseline,
    RankingEvaluator,
    compare_rankings,
    ranking_baseline_metrics,
)
from shunter.tracking.ranking import INDEX, popularity_metrics, ranking_metrics
from shunter.tracking.reports import log_texts
from shunter.tracking.runs import open_run

CARD = "model_card/model_card.md"


@task(name="card", cache_policy=NO_CACHE)
def write_ranking_card(
    parent_run_id: str,
    dataset: Dataset,
    result: TrainedRanker,
    *,
    baselines: Sequence[RankedBaseline] = (),
    reason: str = "",
    learned_validation: bool = False,
) -> tuple[TrainedRanker, tuple[RankingBaseline, ...]]:
    """Rank the test part, compare the result with its baselines; log metrics, comparisons and card to the run."""
    from shunter.reporting.card.ranking import index_of, ranking_card
    from shunter.reporting.card.ranking_breakdown import SIDES, RankingSides, summarise_ranking

    evaluator = RankingEvaluator(dataset)
    (result, own), *evaluated = (evaluator.evaluate(one) for one in (result, *(one.model for one in baselines)))
    for model in (result, *(model for model, _ in evaluated)):
        if model.run_id:
            open_run(model.run_id).log_metrics(ranking_metrics(model.test, "test"))
    others = [other for _, other in evaluated]
    compared = compare_rankings(baselines, [one.figures for one in others], result, own.figures)
    sides = RankingSides(
        result=summarise_ranking(result.spec.family, own),
        baselines=tuple(summarise_ranking(one.name, other) for one, other in zip(compared, others, strict=True)),
    )
    index, run = index_of(dataset, result), open_run(parent_run_id)
    run.log_figures(
        "quality",
        {
            **popularity_metrics(result.popularity),
            **sides.metrics(),
            **index.metrics(),
            **ranking_baseline_metrics(compared),
            **ranking_metrics(result.validation),
            **ranking_metrics(result.test, "test"),
        },
    )
    run.set_tags({**{f"baseline.{one.name}.verdict": one.summary for one in compared}, "ranking.reason": reason})
    run.set_tags({INDEX: index.sentence})
    graph = RankingData.of(dataset, learn_validation=learned_validation).graph
    card = ranking_card(
        result,
        dataset,
        graph,
        own.figures,
        sides.result,
        baselines=compared,
        reason=reason,
        index=index.sentence,
    )
    log_texts(parent_run_id, {CARD: card, SIDES: sides.model_dump_json(indent=1)})
    return result, compared
