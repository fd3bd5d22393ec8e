"""Section of a report about the ranking quality of a graph model and its baselines, by groups of users and items."""

from collections.abc import Sequence
from typing import Any

from shunter.reporting.card.ranking_breakdown import SIDES, RankingBreakdown, RankingSides
from shunter.reporting.page.figures import MOST_GROUPS, Axis, Chart, Mark
from shunter.tracking.history import TrackedRun
from shunter.tracking.ranking import INDEX
from shunter.tracking.tree import RunTree

FIGURES = (("ndcg", "NDCG"), ("recall", "recall"), ("precision", "precision"), ("hit_rate", "hit rate"))


def ranking_section(tree: RunTree) -> dict[str, Any]:
    """Return the ranking quality of result and baselines by list length, group of items and group of users."""
    sides = RankingSides.model_validate_json(tree.artifacts[SIDES])
    names = [f"{sides.result.name}, the result", *(one.name for one in sides.baselines)]
    models = (sides.result, *sides.baselines)
    return {
        "reason": tree.parent.tags.get("ranking.reason", ""),
        "index": tree.parent.tags.get(INDEX, ""),
        "names": names,
        "chart": lengths_chart(sides),
        "lengths": [one.model_dump() for one in sides.result.by_length],
        "models": [
            _model(tree.parent, name, one, is_result=one is sides.result)
            for name, one in zip(names, models, strict=True)
        ],
        "verdicts": [tree.parent.tags.get(f"baseline.{one.name}.verdict", "") for one in sides.baselines],
        "items": _beside([one.item_groups for one in models]),
        "users": _beside([one.user_groups for one in models]),
    }


def lengths_chart(sides: RankingSides) -> Chart:
    """Return the chart of ranking quality over the length of the list, for the result and each baseline."""
    models = (sides.result, *sides.baselines)[:MOST_GROUPS]
    points = [
        Mark(
            group=group,
            series=group,
            values={"cutoff": float(one.cutoff), **{key: getattr(one, key) for key, _ in FIGURES}},
            tip=[
                f"{model.name}, first {one.cutoff}",
                *(f"{title} {getattr(one, key):.4f}" for key, title in FIGURES),
                f"NDCG with 95 %: {one.ndcg_low:.4f} to {one.ndcg_high:.4f}",
            ],
            star=one.cutoff == 20 and group == 0,
        )
        for group, model in enumerate(models)
        for one in model.by_length
    ]
    return Chart(
        x=[Axis(key="cutoff", label="length of the list", log=True)],
        y=[Axis(key=key, label=f"{title} (measured on test, mean over users)", zero=True) for key, title in FIGURES],
        groups=[f"{sides.result.name}, the result", *(model.name for model in models[1:])],
        points=points,
        marks=["★ the figure by which models are compared"],
        connect=True,
    )


def _model(run: TrackedRun, name: str, model: RankingBreakdown, *, is_result: bool) -> dict[str, Any]:
    """Return a row of the table of models; the result's gain has an interval by paired bootstrap over the users."""
    of = f"baseline.{model.name}"
    twenty = next(one for one in model.by_length if one.cutoff == 20)
    gain = {} if is_result else {key: run.metrics.get(f"{of}.{key}") for key in ("gain", "gain_low", "gain_high")}
    return {
        "name": name,
        "is_result": is_result,
        "ndcg20": twenty.ndcg,
        "recall20": twenty.recall,
        "coverage20": model.coverage20,
        "novelty20_bits": model.novelty20_bits,
        "gain": gain if gain.get("gain") is not None else None,
        "seconds": None if is_result else run.metrics.get(f"{of}.train_seconds"),
        "joules": None if is_result else run.metrics.get(f"{of}.joules"),
    }


def _beside(groups: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return a row for each group: its size from the first model, and the metrics of all models."""
    return [
        {**same[0].model_dump(), "of_models": [one.model_dump() for one in same]} for same in zip(*groups, strict=True)
    ]
