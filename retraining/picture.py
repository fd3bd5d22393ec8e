"""Plot of a comparison: histogram of the bootstrap gains, with the outcome of the nightly run."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.ranker_comparison import RankingComparison


def draw_comparison(
    comparison: ChampionComparison | RankingComparison, gains: NDArray[np.float64], path: Path, outcome: str
) -> Path:
    """Plot a histogram of the bootstrap gains with the required gain.

    Args:
        comparison: Comparison based on these gains.
        gains: Gains in nats per row or in NDCG@20, `[resamples]`.
        path: Path of the PNG file.
        outcome: Outcome of the nightly run, which depends on more than the comparison.
    """
    if isinstance(comparison, RankingComparison):
        low, count, label = comparison.gain_low, f"{comparison.users:,} users", "NDCG@20 gained by the challenger"
    else:
        what = "log loss" if comparison.constant_loss is None else "loss"
        low, count, label = comparison.saving_low, f"{comparison.rows:,} rows", f"{what} saved by the challenger"
    return draw_gains(
        gains,
        path,
        low=low,
        needed=comparison.needed,
        confidence=comparison.confidence,
        title=title_of(outcome, count),
        label=f"{label}, in thousandths",
    )


def title_of(outcome: str, count: str) -> str:
    """Return the title of the plot of a comparison."""
    return f"Outcome: {outcome}, evaluated on {count}"


def draw_gains(
    gains: NDArray[np.float64], path: Path, *, low: float, needed: float, confidence: float, title: str, label: str
) -> Path:
    """Plot a histogram of bootstrap gains, in thousandths, with the required gain.

    Args:
        gains: Gains, `[resamples]`.
        path: Path of the PNG file.
        low: Lower confidence bound of the gain.
        needed: Required gain.
        confidence: Required confidence.
        title: Title of the plot.
        label: Name and unit of the gain.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.hist(1e3 * gains, bins=60, color="#4c72b0", alpha=0.85)
    bound = f"exceeded with probability {confidence:.0%}: {1e3 * low:.3f}"
    axes.axvline(1e3 * low, color="#1b2a49", linestyle="--", label=bound)
    axes.axvline(1e3 * needed, color="#c44e52", linewidth=2, label=f"required: {1e3 * needed:.3f}")
    axes.set_xlabel(label)
    axes.set_ylabel(f"of {len(gains):,} resamples")
    axes.set_title(title)
    axes.legend(loc="upper left", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
