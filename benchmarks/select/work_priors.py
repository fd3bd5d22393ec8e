"""Derives the constants of `shunter.planner.history.epochs` from Pollux' recorded trainings, and prints them.

Data: Qiao et al., "Pollux", OSDI 2021, their validation curves of CIFAR-10, ImageNet, DeepSpeech2 and NCF, one training
at each of 6 to 8 batch sizes. The epochs to a target are counted for two targets each: nine tenths and 97 % of the way
from the first validation to what the worst of the batch sizes reaches at last. (Of BERT there are two validations only,
and YOLOv3 is worse at every batch size but the smallest.) The likelihood is that of the model in `estimate_epochs`;
weak priors keep the scales that four workloads cannot tell near to where they start.

    python -m benchmarks.select.work_priors
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from shunter.planner.history.gaussian_process import VAGUE_DEVIATION, similarity
from shunter.settings import PROJECT_ROOT

FOLDER = PROJECT_ROOT.parent / "shared" / "data" / "clusters" / "pollux_osdi21" / "traces"
# The workload, and whether its metric rises.
WORKLOADS = {"cifar10": True, "deepspeech2": False, "imagenet": True, "ncf": True}
PARTS = (0.9, 0.97)  # of the way to what all batch sizes reach
NAMES = ("slope", "slope_deviation", "spread", "octaves", "noise")
START = np.array([0.15, np.log(0.1), np.log(0.4), np.log(3.0), np.log(0.12)])
SCALE_DEVIATIONS = np.array([np.inf, 0.7, 0.7, 0.5, 0.5])  # of the logarithms, about the start

Curve = tuple[np.ndarray, np.ndarray]


def read_curves(folder: Path = FOLDER) -> list[Curve]:
    """Log batch sizes (base 2) and log epochs to the target, of each workload and target."""
    curves = []
    for workload, rises in WORKLOADS.items():
        runs = {
            int(path.stem.removeprefix("validation-")): pd.read_csv(path) for path in folder.glob(f"{workload}/val*")
        }
        metrics = {size: (run["metric"] if rises else -run["metric"]).cummax().to_numpy() for size, run in runs.items()}
        reached = min(float(values[-1]) for values in metrics.values())
        first = float(np.median([values[0] for values in metrics.values()]))
        smallest = min(runs)
        epoch_samples = runs[smallest]["iteration"].iloc[0] * smallest
        for part in PARTS:
            target = first + part * (reached - first)
            epochs = [
                runs[size]["iteration"].iloc[int(np.argmax(metrics[size] >= target))] * size / epoch_samples
                for size in sorted(runs)
            ]
            curves.append((np.log2(sorted(runs)), np.log(epochs)))
    return curves


def misfit(values: np.ndarray, curves: list[Curve]) -> float:
    """Negative log likelihood of the curves, and of the values under their weak priors."""
    slope, (deviation, spread, octaves, noise) = values[0], np.exp(values[1:])
    total = 0.5 * float((((values - START) / SCALE_DEVIATIONS) ** 2).sum())
    for sizes, epochs in curves:
        centred, left = sizes - sizes.mean(), epochs - slope * sizes
        covariance = VAGUE_DEVIATION**2 + deviation**2 * np.outer(centred, centred)
        covariance = covariance + spread**2 * similarity(sizes, sizes, octaves) + noise**2 * np.eye(len(sizes))
        left = left - left.mean()
        total += 0.5 * float(left @ np.linalg.solve(covariance, left)) + 0.5 * float(np.linalg.slogdet(covariance)[1])
    return total


def fit(curves: list[Curve]) -> dict[str, float]:
    """The most likely constants, by their names."""
    found = minimize(misfit, START, args=(curves,), method="Nelder-Mead", options={"maxiter": 4_000}).x
    return dict(zip(NAMES, [float(found[0]), *map(float, np.exp(found[1:]))], strict=True))


if __name__ == "__main__":
    for name, value in fit(read_curves()).items():
        print(f"{name}: {value:.3f}")
