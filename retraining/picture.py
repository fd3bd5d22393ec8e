"""The comparison for the eye: how the saving came out in each resample."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.retraining.bootstrap import Judgement


def draw_judgement(judgement: Judgement, savings: NDArray[np.float64], path: Path) -> Path:
    """Draw a histogram of the resampled savings with the saving asked for.

    Args:
        judgement: Judgement made of these savings.
        savings: `[resamples]`, in nats per row.
        path: Path of the PNG.
    """
    return draw_gains(
        savings,
        path,
        low=judgement.saving_low,
        needed=judgement.needed,
        confidence=judgement.confidence,
        title=f"{'Promoted' if judgement.is_better else 'Not promoted'}, judged on {judgement.rows:,} rows",
        label="log loss saved by the challenger, in thousandths of a nat per row",
    )


def draw_gains(
    gains: NDArray[np.float64], path: Path, *, low: float, needed: float, confidence: float, title: str, label: str
) -> Path:
    """Draw a histogram of resampled gains, in thousandths, with the gain asked for.

    Args:
        gains: `[resamples]`.
        path: Path of the PNG.
        low: Bound that they exceed with the probability asked for.
        needed: Gain asked for.
        confidence: That probability.
        title: What came of it.
        label: What is gained, and in which unit.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.hist(1e3 * gains, bins=60, color="#4c72b0", alpha=0.85)
    bound = f"exceeded with probability {confidence:.0%}: {1e3 * low:.3f}"
    axes.axvline(1e3 * low, color="#1b2a49", linestyle="--", label=bound)
    axes.axvline(1e3 * needed, color="#c44e52", linewidth=2, label=f"asked for: {1e3 * needed:.3f}")
    axes.set_xlabel(label)
    axes.set_ylabel(f"of {len(gains):,} resamples")
    axes.set_title(title)
    axes.legend(loc="upper left", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
