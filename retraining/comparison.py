"""Comparison of champion and challenger on one day, and its plot."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.engine.metrics import area_under_roc, constant_losses, predict, root_mean_square, row_losses
from shunter.ingestion.batch import RawBatch
from shunter.ingestion.sources.days import DayLog, DaysSource
from shunter.retraining.losses import Keep, number_of, scores_of
from shunter.retraining.nightly_request import NightlyRequest
from shunter.statistics import resampled_block_means
from shunter.tracking.registry.champion_comparison import ChampionComparison, compare_losses
from shunter.tracking.registry.ranker_comparison import RankingComparison
from shunter.tracking.registry.versions import ModelFiles


def compare(
    request: NightlyRequest,
    log: DayLog,
    champion: ModelFiles,
    challenger: ModelFiles,
    *,
    only_test_part: bool = False,
) -> tuple[ChampionComparison, NDArray[np.float64]]:
    """Score a day with both models, and compare their losses.

    Args:
        request: Request with margin, confidence and seed.
        log: Log of the day.
        champion: Model in use.
        challenger: Model that may replace the champion.
        only_test_part: Whether to score only the rows that a training run on this day holds out as its test part.

    Returns:
        The comparison, and the mean reduction of the loss in each bootstrap resample.

    Raises:
        DataError: The day cannot be read or has no row, or a prediction of the champion is not finite.
        TrainingError: A prediction of the challenger is not finite.
        CheckpointError: A model is damaged.
    """
    keep = test_part_filter(log, request.seed) if only_test_part else None
    labels, of_champion, _ = scores_of(champion, log, keep)
    _, of_challenger, _ = scores_of(challenger, log, keep)
    number = number_of(champion)  # the challenger has the same scale of labels
    before, now = row_losses(labels, of_champion, number), row_losses(labels, of_challenger, number)
    comparison = compare_losses(
        before,
        now,
        margin=request.promotion.margin,
        confidence=request.promotion.promotion_confidence,
        seed=request.seed,
    )
    if number is not None:
        rmse = [root_mean_square(predict(outputs, number) - labels) for outputs in (of_champion, of_challenger)]
        constant = constant_losses(labels, np.ones(len(labels)), number)
        comparison = comparison.of_numbers(constant, champion_rmse=rmse[0], challenger_rmse=rmse[1])
    elif 0 < labels.mean() < 1:
        aucs = {"champion_auc": of_champion, "challenger_auc": of_challenger}
        known = {name: area_under_roc(labels, logits) for name, logits in aucs.items()}
        comparison = comparison.model_copy(update={**known, "base_rate": float(labels.mean())})
    return comparison, resampled_block_means(before - now, request.seed)


def test_part_filter(log: DayLog, seed: int) -> Keep:
    """Return a filter for the rows of a day that are its test part if a training run uses this day alone."""
    splitter = DaysSource("", (log,)).splitter(seed)

    def keep(batch: RawBatch) -> NDArray[np.bool_]:
        return splitter.assign(batch) == 2

    return keep


def draw_comparison(
    comparison: ChampionComparison | RankingComparison, gains: NDArray[np.float64], path: Path, outcome: str
) -> Path:
    """Plot a histogram of the bootstrap gains, in thousandths, with the required gain.

    Args:
        comparison: Comparison based on these gains.
        gains: Gains in nats per row or in NDCG@20, `[resamples]`.
        path: Path of the PNG file.
        outcome: Outcome of the nightly run, which depends on more than the comparison.
    """
    from matplotlib.figure import Figure

    if isinstance(comparison, RankingComparison):
        low, count, label = comparison.gain_low, f"{comparison.users:,} users", "NDCG@20 gained by the challenger"
    else:
        what = "log loss" if comparison.constant_loss is None else "loss"
        low, count, label = comparison.saving_low, f"{comparison.rows:,} rows", f"{what} saved by the challenger"
    figure, needed = Figure(figsize=(8, 4.5), layout="constrained"), comparison.needed
    axes = figure.subplots()
    axes.hist(1e3 * gains, bins=60, color="#4c72b0", alpha=0.85)
    bound = f"exceeded with probability {comparison.confidence:.0%}: {1e3 * low:.3f}"
    axes.axvline(1e3 * low, color="#1b2a49", linestyle="--", label=bound)
    axes.axvline(1e3 * needed, color="#c44e52", linewidth=2, label=f"required: {1e3 * needed:.3f}")
    axes.set_xlabel(f"{label}, in thousandths")
    axes.set_ylabel(f"of {len(gains):,} resamples")
    axes.set_title(title_of(outcome, count))
    axes.legend(loc="upper left", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def title_of(outcome: str, count: str) -> str:
    """Return the title of the plot of a comparison."""
    return f"Outcome: {outcome}, evaluated on {count}"
