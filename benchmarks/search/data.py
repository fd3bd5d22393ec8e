"""The click logs that the benchmarks of the search train on: four real ones, whole or a sample of their rows.

Frappe and MovieLens-1M as clicks are those of `benchmarks.quality.data`. Criteo is 20,000 rows of the Kaggle file with
its 13 numbers and 26 categories, split by a hash; Open Bandit is 60,000 impressions of a shop, split by time, of which
0.5 % are clicked. All are research data that lie beside the project and are not part of it.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.quality.data import SHARED_DATA, write_frappe, write_ml1m
from engine.data.dataset import Dataset, SplitStatistics
from ingestion.cache import ingest_source
from ingestion.schema import Schema
from ingestion.sources.criteo import CATEGORICAL, NUMERIC
from ingestion.sources.open import source_of

SAMPLE_SEED = 7


def load(name: str, folder: Path, rows: Mapping[str, int] | None = None) -> Dataset:
    """One of `WRITERS`, written below a folder or found there.

    Args:
        name: Name in `WRITERS`.
        folder: Folder where it is kept, whole and as a sample; the same folder gives the same arrays.
        rows: Rows of each part that is to be smaller, as `{"train": 20_000, "validation": 10_000}`; None is all of it.
    """
    whole = _found(folder / name) or WRITERS[name](_made(folder / name))
    if rows is None:
        return whole
    sampled = folder / f"{name}-{'-'.join(f'{part}{count}' for part, count in sorted(rows.items()))}"
    return _found(sampled) or sample(whole, _made(sampled), rows)


def sample(dataset: Dataset, folder: Path, rows: Mapping[str, int], seed: int = SAMPLE_SEED) -> Dataset:
    """A data set of fewer rows, drawn without replacement and in their old order; ids and statistics stay as they are.

    Args:
        dataset: Data set of one label, as all of `WRITERS`.
        folder: Empty folder of the new arrays.
        rows: Rows of each part that is to be smaller; a part that has no more than so many is kept whole.
        seed: Seed of the draw.
    """
    chosen = {
        part: np.sort(np.random.default_rng([seed, place]).permutation(one.rows)[: rows.get(part)])
        for place, (part, one) in enumerate(dataset.splits.items())
    }
    for part, kept in chosen.items():
        for path in dataset.directory.glob(f"{part}.*.npy"):
            if ".bag" not in path.name:
                np.save(folder / path.name, np.load(path)[kept])
        for path in dataset.directory.glob(f"{part}.bag*.offsets.npy"):
            _sample_bags(path, folder, kept)
    smaller = replace(
        dataset,
        directory=folder,
        fingerprint=f"{dataset.fingerprint}-{seed}-" + "-".join(f"{part}{len(kept)}" for part, kept in chosen.items()),
        splits={
            part: SplitStatistics(rows=len(kept), positives=int(np.load(folder / f"{part}.label.npy").sum()))
            for part, kept in chosen.items()
        },
    )
    smaller.save()
    return smaller


def _sample_bags(path: Path, folder: Path, kept: np.ndarray) -> None:
    offsets = np.load(path)
    values_name = path.name.replace("offsets", "values")
    values = np.load(path.with_name(values_name))
    lengths = np.diff(offsets)[kept]
    ends = np.cumsum(lengths)
    places = np.arange(lengths.sum()) + np.repeat(offsets[:-1][kept] - (ends - lengths), lengths)
    np.save(folder / path.name, np.append(0, ends).astype(np.int64))
    np.save(folder / values_name, values[places])


def _write_criteo(folder: Path) -> Dataset:
    schema = {"label": "label", "numeric": list(NUMERIC), "categorical": list(CATEGORICAL)}
    return _ingested("criteo", folder, "criteo_kaggle_rows90k_110k_indexed.parquet", schema)


def _write_open_bandit(folder: Path) -> Dataset:
    fields = ["item_id", "position", *(f"user_feature_{number}" for number in range(4))]
    schema = {"label": "click", "categorical": fields, "time": "timestamp"}
    return _ingested("open_bandit", folder, "open_bandit_60k.parquet", schema)


def _ingested(name: str, folder: Path, file: str, schema: Mapping[str, object]) -> Dataset:
    """A file as the product itself reads it."""
    with TemporaryDirectory() as cache:
        written = Path(cache) / "schema.yaml"
        written.write_text(Schema.model_validate(schema).model_dump_json())
        source = source_of(name, (SHARED_DATA / file,), None, str(written))
        dataset, _ = ingest_source(source, Path(cache), seed=0, max_bad_share=0.0)
        for path in dataset.directory.glob("*.npy"):
            shutil.copy(path, folder)
    dataset = replace(dataset, directory=folder)
    dataset.save()
    return dataset


WRITERS: dict[str, Callable[[Path], Dataset]] = {
    "frappe": write_frappe,
    "ml1m": write_ml1m,
    "criteo": _write_criteo,
    "open_bandit": _write_open_bandit,
}


def _found(folder: Path) -> Dataset | None:
    """The data set that is already there, complete: its description is written last."""
    return Dataset.load(folder) if (folder / "dataset.json").exists() else None


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
