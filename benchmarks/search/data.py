"""The click logs that the benchmarks of the search train on: real and generated, whole or a sample of their rows.

Frappe and MovieLens-1M as clicks are those of `benchmarks.quality.data`; `ml1m_ids` are the ratings of the first 500
users with the ids of user and film beside all that is known of both. Criteo is 20,000 rows from the middle of the
Kaggle file with its 13 numbers and 26 categories, split by a hash, `criteo_first` its first 10,000 with their gaps.
`games` are reviews of Amazon, each beside an item that was drawn: which of the two the user chose next. Open Bandit is
60,000 impressions of a shop, split by time, of which 0.5 % are clicked. All of these are research data that lie beside
the project and are not part of it. `synthetic` is the product's generated data, `planted` that of `planted.py`.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from benchmarks.next_item import LEAST_ITEMS, read_parts
from benchmarks.quality.data import ML1M_FIELDS, SHARED_DATA, read_ml1m, write_frappe, write_ml1m
from benchmarks.search.planted import planted_log
from shunter.engine.data.dataset import Dataset, SplitStatistics
from shunter.ingestion.batch import Source
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.schema import Options, Schema, Split
from shunter.ingestion.sources.criteo import CATEGORICAL, NUMERIC, CriteoSource, criteo_schema
from shunter.ingestion.sources.open import source_of
from shunter.ingestion.sources.synthetic import SyntheticSource

SAMPLE_SEED = 7
# Of small logs, so that their validation part holds clicks enough.
HALF_HELD_OUT = Split(train=0.65, validation=0.3, test=0.05)
ML1M_USERS, GAMES_USERS = 500, 1_000
GENERATED_ROWS, GENERATED_SEED = 26_000, 5
# What logs were drawn from: logs of one origin may share rows, and are never each other's past.
ORIGINS = {"ml1m": "movielens", "ml1m_ids": "movielens", "criteo": "criteo", "criteo_first": "criteo"}


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
    return _ingested("criteo", folder, SHARED_DATA / "criteo_kaggle_rows90k_110k_indexed.parquet", schema)


def _write_open_bandit(folder: Path) -> Dataset:
    fields = ["item_id", "position", *(f"user_feature_{number}" for number in range(4))]
    schema = {"label": "click", "categorical": fields, "time": "timestamp"}
    return _ingested("open_bandit", folder, SHARED_DATA / "open_bandit_60k.parquet", schema)


def _write_criteo_first(folder: Path) -> Dataset:
    path = SHARED_DATA / "criteo_kaggle_first10k.tsv.gz"
    return _from_source(CriteoSource("criteo_first", criteo_schema(Options(split=HALF_HELD_OUT)), (path,)), folder)


def _write_ml1m_ids(folder: Path) -> Dataset:
    frame, _ = read_ml1m()
    frame = frame[frame.user <= ML1M_USERS].assign(liked=lambda rows: (rows.rating > 3).astype(np.int64))
    bag = {"column": "genres", "separator": "|"}
    single = ["user", "item", *ML1M_FIELDS]
    rows = frame.filter(["liked", "genres", *single]).astype(dict.fromkeys(["genres", *single], str))
    return _from_frame("ml1m_ids", folder, rows, {"label": "liked", "categorical": single, "multi_valued": [bag]})


def _write_games(folder: Path) -> Dataset:
    """What a user reviewed next, beside an item drawn evenly from those that the user never did; parts of SASRec."""
    parts = read_parts(GAMES_USERS)
    log = pd.concat([frame.assign(part=part, place=place) for place, (part, frame) in enumerate(parts.items())])
    log = log.sort_values(["user", "place"], kind="stable", ignore_index=True)
    log = log[log.groupby("user").user.transform("size") >= LEAST_ITEMS]
    log = log.assign(before=log.groupby("user").item.shift()).dropna()
    items, random = np.unique(log.item.to_numpy()), np.random.default_rng(SAMPLE_SEED)
    known = {user: set(own) for user, own in log.groupby("user").item}
    drawn = log.assign(chosen=0, item=[_never_chosen(items, known[user], random) for user in log.user])
    rows = pd.concat([log, drawn]).filter(["chosen", "user", "item", "before", "part"]).astype({"before": np.int64})
    fields = ["user", "item", "before"]
    return _from_frame("games", folder, rows, {"label": "chosen", "categorical": fields, "part": "part"})


def _never_chosen(items: np.ndarray, known: set[int], random: np.random.Generator) -> int:
    while (item := int(random.choice(items))) in known:
        pass
    return item


def _write_synthetic(folder: Path) -> Dataset:
    schema = criteo_schema(Options(split=HALF_HELD_OUT))
    return _from_source(SyntheticSource(GENERATED_ROWS, GENERATED_SEED, schema=schema), folder)


def _write_planted(folder: Path) -> Dataset:
    fields = ["user", "item", "hour", "device"]
    schema = {"label": "clicked", "categorical": fields, "numeric": ["price"], "split": HALF_HELD_OUT}
    return _from_frame("planted", folder, planted_log(GENERATED_ROWS, GENERATED_SEED), schema)


def _from_frame(name: str, folder: Path, rows: pd.DataFrame, schema: Mapping[str, object]) -> Dataset:
    with TemporaryDirectory() as written:
        path = Path(written) / f"{name}.parquet"
        rows.to_parquet(path, index=False)
        return _ingested(name, folder, path, schema)


def _ingested(name: str, folder: Path, path: Path, schema: Mapping[str, object]) -> Dataset:
    """A file as the product itself reads it."""
    with TemporaryDirectory() as written:
        schema_file = Path(written) / "schema.yaml"
        schema_file.write_text(Schema.model_validate(schema).model_dump_json())
        return _from_source(source_of(name, (path,), None, str(schema_file)), folder)


def _from_source(source: Source, folder: Path) -> Dataset:
    with TemporaryDirectory() as cache:
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
    "games": _write_games,
    "ml1m_ids": _write_ml1m_ids,
    "criteo_first": _write_criteo_first,
    "synthetic": _write_synthetic,
    "planted": _write_planted,
}


def _found(folder: Path) -> Dataset | None:
    """The data set that is already there, complete: its description is written last."""
    return Dataset.load(folder) if (folder / "dataset.json").exists() else None


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
