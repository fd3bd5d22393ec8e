"""Members of planted quality."""

import numpy as np


def planted(rows: int, noises: list[float], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and members that see the true log odds through independent noise of the given deviations."""
    random = np.random.default_rng(seed)
    truth = random.normal(0, 2, rows)
    labels = (random.random(rows) < 1 / (1 + np.exp(-truth))).astype(np.float32)
    return labels, np.stack([truth + random.normal(0, noise, rows) for noise in noises])
