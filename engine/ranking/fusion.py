"""Selection of graph models that rank better together, on the validation part, if the gain is significant."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shunter.engine.config import Repeats, SelectBy
from shunter.engine.ranking.evaluation import RankingMetrics, UserFigures, evaluate_users
from shunter.engine.ranking.interactions import Interactions
from shunter.models.graph.spec import WAYS, By
from shunter.statistics import mean_interval

if TYPE_CHECKING:
    from shunter.models.graph.ranker import Ranker


@dataclass(frozen=True)
class Fusion:
    """Models that together rank the validation part better than the best single model.

    Attributes:
        members: Names of the models, the best first.
        by: Quantity that is summed over the models: z-scores or reciprocal ranks.
        validation: Validation quality of the combined ranking.
        gain: Mean over users of the gain over the best single model, in the selection metric.
        low: Lower bound of the 95 % confidence interval of the gain; above 0.
        high: Upper bound of the 95 % confidence interval of the gain.
    """

    members: tuple[str, ...]
    by: By
    validation: RankingMetrics
    gain: float
    low: float
    high: float


def choose_fusion(
    rankers: "Mapping[str, Ranker]",
    chosen: Interactions,
    seen: Interactions,
    *,
    most: int,
    select_by: SelectBy,
    repeats: Repeats = "drop",
) -> Fusion | None:
    """Select models greedily for each method to combine scores: each step adds the model that raises the metric most.

    Args:
        rankers: Candidate models by name; none was trained on `chosen`.
        chosen: Pairs of the validation part.
        seen: Items that each user has seen already.
        most: Largest number of members.
        select_by: Metric by which rankings are compared.
        repeats: Whether chosen pairs that are in `seen` count (`keep`) or not (`drop`).

    Returns:
        The best fusion; None if it does not beat the best single model with 95 % confidence.
    """
    from shunter.models.graph.fusion import FusedRanker

    def evaluated(ranker: "Ranker") -> UserFigures:
        return evaluate_users(ranker, chosen, seen, name="validation", repeats=repeats)

    def figure(figures: UserFigures) -> float:
        return figures.mean().figure_by(select_by)

    alone = {name: evaluated(ranker) for name, ranker in rankers.items()}
    first = max(alone, key=lambda name: figure(alone[name]))
    best: tuple[tuple[str, ...], By, UserFigures] = (first,), WAYS[0], alone[first]
    for by in WAYS:
        members, together = (first,), alone[first]
        while len(members) < min(most, len(rankers)):
            others = [name for name in rankers if name not in members]
            tried = {name: evaluated(FusedRanker([rankers[one] for one in (*members, name)], by)) for name in others}
            name = max(tried, key=lambda one: figure(tried[one]))
            if figure(tried[name]) <= figure(together):
                break
            members, together = (*members, name), tried[name]
        if figure(together) > figure(best[2]):
            best = members, by, together
    members, by, together = best
    which = "recall20" if select_by == "recall@20" else "ndcg20"
    gains = getattr(together, which) - getattr(alone[first], which)
    low, high = mean_interval(gains)
    if low <= 0:
        return None
    return Fusion(members, by, together.mean(), float(gains.mean()), low, high)
