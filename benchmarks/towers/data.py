"""Generated clicks whose fields come in groups: those of a group depend on each other, and interact with no other."""

from pathlib import Path

import numpy as np

from shunter.engine.data.dataset import SPLITS, Dataset, FieldStatistics, SplitStatistics
from shunter.extensions.towers.dmt import Towers
from shunter.models.spec import CategoricalFeature, Features

GROUPS, FIELDS_A_GROUP, IDS, HIDDEN = 4, 3, 40, 4
SHARES = (0.8, 0.1, 0.1)


def write_grouped(directory: Path, rows: int, seed: int) -> tuple[Dataset, Towers]:
    """Write a data set, and tell which fields make a group.

    Each sample has a hidden vector for each group. An id of a field has a hidden vector of its own and is drawn the
    more often, the better it suits that of the group. The label follows from the products of the ids' vectors of all
    pairs within a group, so that no field tells anything alone. The fields of the groups stand in a random order.
    """
    random = np.random.default_rng(seed)
    fields = GROUPS * FIELDS_A_GROUP
    groups = random.permutation(fields).reshape(GROUPS, FIELDS_A_GROUP)
    hidden = random.normal(0, 1, (fields, IDS, HIDDEN))
    ids = np.empty((rows, fields), dtype=np.int32)
    logits = np.zeros(rows)
    for group in groups:
        wanted = random.normal(0, 1, (rows, HIDDEN))
        for field in group:
            suits = wanted @ hidden[field].T + random.gumbel(0, 1, (rows, IDS))
            ids[:, field] = suits.argmax(1)
        vectors = [hidden[field][ids[:, field]] for field in group]
        for place, vector in enumerate(vectors):
            logits += sum((vector * other).sum(1) for other in vectors[:place])
    logits = 1.5 * (logits - logits.mean()) / logits.std()
    labels = (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    dataset = _dataset(directory, fields, rows, labels, f"grouped-{rows}-{seed}")
    start = 0
    for split in SPLITS:
        end = start + dataset.splits[split].rows
        np.save(directory / f"{split}.categorical.npy", ids[start:end])
        np.save(directory / f"{split}.label.npy", labels[start:end])
        start = end
    dataset.save()
    return dataset, tuple(tuple(sorted(group.tolist())) for group in groups)


def _dataset(directory: Path, fields: int, rows: int, labels: np.ndarray, name: str) -> Dataset:
    directory.mkdir(parents=True, exist_ok=True)
    splits, start = {}, 0
    for split, share in zip(SPLITS, SHARES, strict=True):
        end = start + int(rows * share)
        splits[split] = SplitStatistics(rows=end - start, positives=int(labels[start:end].sum()))
        start = end
    names = [f"field{number}" for number in range(fields)]
    return Dataset(
        name="grouped",
        directory=directory,
        fingerprint=name,
        features=Features(dense=(), categorical=tuple(CategoricalFeature(name=name, rows=IDS) for name in names)),
        splits=splits,
        split_by="hash",
        fields=tuple(
            FieldStatistics(name=name, kind="categorical", cardinality=IDS, missing_share=0.0) for name in names
        ),
        quarantined_rows=0,
    )
