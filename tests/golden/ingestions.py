"""Small click logs in every format, and what ingestion makes of them: every array and every file of the encoder."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shunter.checked_folder import MANIFEST
from shunter.engine.data.dataset import Dataset
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.open import open_source
from tests.golden.homes import at_home
from tests.golden.recorded import RECORDED

FILE = "ingest.json"
LOGS = RECORDED / "logs"
ROWS = 400
SCHEMA: dict[str, Any] = {
    "label": "click",
    "numeric": ["price", "age"],
    "categorical": ["user", "item", {"column": "shop", "hash_size": 16}, {"column": "town", "min_count": 1}],
    "multi_valued": [{"column": "tags", "separator": "|"}],
}
SIDES = {"user": "user", "item": "item"}
TWO_LABELS = [{"column": "click"}, {"column": "age", "name": "old", "positive_at_least": 40}]
SCHEMAS: dict[str, dict[str, Any]] = {
    "by hash": SCHEMA,
    "by time": {**SCHEMA, **SIDES, "time": "when", "split": {"train": 0.6, "validation": 0.2, "test": 0.2}},
    "with histories": {
        **SCHEMA,
        "time": "when",
        "sequences": [{"column": "seen", "items": "item", "by": "user", "length": 5, "positives_only": True}],
    },
    "two labels": {
        **{name: value for name, value in SCHEMA.items() if name != "label"},
        "numeric": ["price"],
        "labels": TWO_LABELS,
        "weight": "worth",
    },
}
CASES = {
    "criteo": ("log.tsv", None),
    **{f"csv {name}": ("clicks.csv", name) for name in SCHEMAS},
    **{f"parquet {name}": ("clicks.parquet", name) for name in SCHEMAS},
    "synthetic": ("synthetic:500", None),
}


def write_logs() -> None:
    """Record the click logs themselves, so that no other version of a library writes them otherwise."""
    LOGS.mkdir(parents=True, exist_ok=True)
    frame = _clicks(np.random.default_rng(1))
    frame.write_csv(LOGS / "clicks.csv")
    frame.write_parquet(LOGS / "clicks.parquet", compression="zstd")
    (LOGS / "log.tsv").write_text("".join(_criteo_line(np.random.default_rng([2, row])) for row in range(ROWS)))


def _clicks(random: np.random.Generator) -> pl.DataFrame:
    user = random.integers(0, 40, ROWS)
    prices = [None if number % 11 == 0 else (number - 100) / 8 for number in random.integers(0, 900, ROWS).tolist()]
    tags = ("new", "sale", "blue", "größer", "a b")
    return pl.DataFrame(
        {
            "click": (random.integers(0, 5, ROWS) < 1 + user % 3).astype(int),
            "price": prices,
            "age": random.integers(18, 80, ROWS),
            "user": user,
            "item": [f"item {number}" for number in random.integers(0, 25, ROWS)],
            "shop": [("north", "south", "", "east")[number] for number in random.integers(0, 4, ROWS)],
            "town": [f"t{number}" for number in random.integers(0, 300, ROWS)],
            "tags": ["|".join(tags[first:last]) for first, last in random.integers(0, 6, (ROWS, 2))],
            "when": 1_700_000_000 + random.integers(0, 10_000, ROWS),
            "worth": random.integers(0, 4, ROWS) / 2,
            "unnamed": random.integers(0, 9, ROWS),
        }
    )


def _criteo_line(random: np.random.Generator) -> str:
    label = str(random.integers(0, 3) // 2)
    numbers = ["" if number % 7 == 0 else str(number - 2) for number in random.integers(0, 1_000, 13)]
    ids = ["" if number == 0 else f"{number * 2_654_435_761 % 2**32:08x}" for number in random.integers(0, 12, 26)]
    return "\t".join([label, *numbers, *ids]) + "\n"


def ingested(case: str, folder: Path) -> Dataset:
    """Ingest one of the logs into a folder."""
    name, schema = CASES[case]
    schema_file = folder / "schema.json"
    folder.mkdir(parents=True, exist_ok=True)
    if schema is not None:
        schema_file.write_text(json.dumps(SCHEMAS[schema]))
    with at_home(folder / "home"):
        source = open_source(
            name if ":" in name else str(LOGS / name), None, str(schema_file) if schema else None, folder / "downloads"
        )
        dataset, _ = ingest_source(source, folder / "cache", 0, 0.01)
    return dataset


def contents(case: str, folder: Path) -> dict[str, Any]:
    """A hash of every array and every other file, and the description of the data set."""
    dataset = ingested(case, folder)
    files = sorted(path for path in dataset.directory.rglob("*") if path.is_file())
    hashes: dict[str, str] = {}
    for path in files:
        name = path.relative_to(dataset.directory).as_posix()
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                hashes.update({f"{name} {one}": _hash_of(arrays[one]) for one in arrays.files})
        elif path.suffix == ".npy":
            hashes[name] = _hash_of(np.load(path, allow_pickle=False))
        elif name not in ("dataset.json", MANIFEST):  # the manifest sums up the others
            hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"dataset": dataset.to_dict(), "files": hashes}


def _hash_of(array: np.ndarray) -> str:
    array = np.ascontiguousarray(array)
    return hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest()


def depends_on_rounding(name: str) -> bool:
    """Whether a file holds numbers that another processor may round otherwise: those made of logarithms."""
    return name.endswith((".dense.npy", "encoder.json"))
