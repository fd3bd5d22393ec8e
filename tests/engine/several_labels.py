"""Gives a small data set a second label, missing here and there, and weights of its samples."""

from dataclasses import replace

import numpy as np

from shunter.engine.data.dataset import SPLITS, Dataset, LabelStatistics

TASKS = ("click", "conversion")


def with_tasks(dataset: Dataset, *, missing_share: float = 0.4, seed: int = 5) -> Dataset:
    """The same rows with the label `conversion` too: mostly where there was a click, absent in a part of the rows."""
    random = np.random.default_rng(seed)
    statistics = {}
    for split in SPLITS:
        path = dataset.directory / f"{split}.label.npy"
        clicks = np.load(path)
        conversions = (random.random(len(clicks)) < np.where(clicks == 1, 0.7, 0.1)).astype(np.float32)
        conversions[random.random(len(clicks)) < missing_share] = np.nan
        np.save(path, np.stack([clicks, conversions], axis=1))
        seen = conversions[~np.isnan(conversions)]
        other = LabelStatistics(name="conversion", rows=len(seen), positives=int(seen.sum()))
        statistics[split] = replace(dataset.splits[split], others=(other,))
    several = replace(
        dataset,
        features=replace(dataset.features, tasks=TASKS),
        splits=statistics,
        fingerprint=f"{dataset.fingerprint}-tasks-{missing_share}",
    )
    several.save()
    return several


def with_weights(dataset: Dataset, *, seed: int = 6) -> Dataset:
    """The same rows with weights: some zero, some large."""
    random = np.random.default_rng(seed)
    for split, part in dataset.splits.items():
        weights = random.choice([0.0, 0.5, 1.0, 4.0], part.rows).astype(np.float32)
        np.save(dataset.directory / f"{split}.weight.npy", weights)
    weighted = replace(dataset, is_weighted=True, fingerprint=f"{dataset.fingerprint}-weighted")
    weighted.save()
    return weighted
