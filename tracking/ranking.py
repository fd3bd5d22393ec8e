"""Names under which graph models are stored, in addition to those of `shunter.tracking.convention`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from shunter.engine.ranking.config import RankingHyperparameters, RankingReport
from shunter.engine.ranking.evaluation import RankingMetrics
from shunter.models.graph import GraphSpec, learns_in_steps
from shunter.tracking.convention import TRAINING_METRICS, Values

if TYPE_CHECKING:
    from shunter.engine.ranking.fusion import Fusion

INDEX = "ranking.index"  # tag: search method for the best items, and recall of an index of the item vectors


def graph_params(spec: GraphSpec, hyperparameters: RankingHyperparameters) -> Values:
    """Return the parameters of a graph model, `model.*`: architecture and, if trained, hyperparameters."""
    learned_with = hyperparameters.to_dict() if learns_in_steps(spec.family) else {}
    return {f"model.{name}": value for name, value in {**spec.to_dict(), **learned_with}.items()}


def ranking_metrics(metrics: RankingMetrics, split: Literal["validation", "test"] = "validation") -> Values:
    """Return the metrics of a ranking: `quality.*` on the validation part, `quality.test.*` on the test part."""
    prefix = "quality" if split == "validation" else "quality.test"
    return {f"{prefix}.{name}": value for name, value in asdict(metrics).items()}


def popularity_metrics(metrics: RankingMetrics | None) -> Values:
    """Return the test metrics of a ranking by popularity, `baseline.popularity.test.*`; empty if unknown."""
    if metrics is None:
        return {}
    return {f"baseline.popularity.test.{name}": getattr(metrics, name) for name in ("ndcg20", "recall20")}


def fusion_metrics(fusion: "Fusion") -> Values:
    """Return the validation gain of an ensemble of graph models over its best member, `fusion.*`."""
    return {"fusion.gain": fusion.gain, "fusion.gain_low": fusion.low, "fusion.gain_high": fusion.high}


def ranking_epoch_metrics(report: RankingReport) -> Values:
    """Return the metrics of one epoch for the training curves; their step is the epoch."""
    loss = {} if report.train_loss is None else {"quality.train.bpr_loss": report.train_loss}
    return {
        **(ranking_metrics(report.validation) if report.validation.users else {}),
        **loss,
        TRAINING_METRICS["train_seconds"]: report.train_seconds,
    }
