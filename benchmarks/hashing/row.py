"""One cell of the table: a log ingested with tables of some bytes, and a model of it, by the product's own parts.

Ingestion and training are those of `shunter train`, with a job's `set`; the server of Prefect, the choice of a
placement, MLflow and the ensemble, which change no weight of a lone setting, are left out for their time.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from benchmarks.hashing.methods import EXACT, FLOAT_BYTES, METHODS, Column, Written
from benchmarks.hashing.methods import exact as exactly
from benchmarks.quality.data import ML1M_FIELDS, read_ml1m
from benchmarks.quality.files import LOGS, Frames, Log

if TYPE_CHECKING:
    from shunter.engine.data.dataset import Dataset

DIM = 16
FEWEST_VALUES = 200  # smaller tables are exact in all methods
QUICK_ROWS = 10_000


@dataclass(frozen=True)
class Trial:
    """What is trained on a log.

    Attributes:
        log: The log.
        set: Fields of the model and of what it learns with.
        batch_size: Samples a step.
        epochs: At most.
    """

    log: Log
    set: Mapping[str, Any]
    batch_size: int
    epochs: int


def _ml1m() -> Frames:
    frame, parts = read_ml1m()
    columns = frame[["user", "item", *ML1M_FIELDS, "genres", "rating"]]
    return {part: columns.iloc[rows] for part, rows in parts.items()}


_ML1M = LOGS["ml1m"]
_COMMON = {"embedding_dim": DIM, "top_widths": "64,64", "learning_rate_schedule": "plateau", "patience": 1}
TRIALS = {
    "frappe": Trial(
        LOGS["frappe"],
        {
            **_COMMON,
            "batch_norm": "true",
            "dropout": 0.2,
            "dense_learning_rate": 0.002,
            "embedding_learning_rate": 0.1,
            "embedding_l2": 0.0002,
            "embedding_initial_bound": 0.03,
        },
        4096,
        12,
    ),
    "ml1m": Trial(
        Log(
            "MovieLens-1M as clicks, with the ids of users and films",
            _ml1m,
            {**_ML1M.schema, "categorical": ["user", "item", *ML1M_FIELDS]},
        ),
        {**_COMMON, "dense_learning_rate": 0.003, "embedding_learning_rate": 0.05, "embedding_initial_bound": 0.03},
        4096,
        6,
    ),
    "criteo": Trial(LOGS["criteo"], {**_COMMON, "embedding_initial_bound": 0.03}, 512, 6),
}


@lru_cache(maxsize=1)
def _read(data: str) -> Frames:
    return TRIALS[data].log.read()


def write(data: str, folder: Path, method: str, factor: float, *, quick: bool) -> tuple[dict[str, str], list[Column]]:
    """Write the parts of a log and its schema as a method wants them.

    Returns:
        Paths by the names of the options that take them, and the columns that take fewer bytes.
    """
    frames = {part: frame.copy() for part, frame in _read(data).items()}
    if quick:
        frames = {
            part: frame.iloc[: QUICK_ROWS if part == "train" else QUICK_ROWS // 4] for part, frame in frames.items()
        }
    said = {name: value for name, value in TRIALS[data].log.schema.items() if name not in ("user", "item")}
    schema = json.loads(json.dumps(said))
    least = schema.get("vocabulary", {}).get("min_count", 2)
    columns = [_column(name, frames["train"][name].to_numpy(), least, factor) for name in schema.pop("categorical")]
    smaller = [column for column in columns if len(column.codes) >= FEWEST_VALUES]
    schema["categorical"] = []
    for column in columns:
        is_exact = method == EXACT or column not in smaller
        _place(exactly(column) if is_exact else METHODS[method](column), frames, schema)
    for part, frame in frames.items():
        frame.to_parquet(folder / f"{part}.parquet", index=False)
    (folder / "schema.yaml").write_text(yaml.safe_dump(schema))
    files = {"data": "train", "validation": "validation", "test": "test"}
    paths = {option: str(folder / f"{part}.parquet") for option, part in files.items()}
    return {**paths, "schema_file": str(folder / "schema.yaml")}, smaller


def _column(name: str, values: NDArray[Any], least: int, factor: float) -> Column:
    found, counts = np.unique(values[~pd.isna(values)], return_counts=True)
    known = found[counts >= least]
    row_bytes = FLOAT_BYTES * DIM
    return Column(
        name, pd.Series(range(len(known)), index=known), row_bytes, int((len(known) + 1) * row_bytes / factor)
    )


def _place(written: Written, frames: Frames, schema: dict[str, Any]) -> None:
    """Put a column into the schema, and its values into the parts where they are others."""
    if written.values is None:
        schema["categorical"].append(written.said)
        return
    name = written.said["column"]
    for part, frame in frames.items():
        frames[part] = frame.assign(**{name: written.values(pd.Series(frame[name]))})
    schema.setdefault("multi_valued", []).append(written.said)


def run(data: str, method: str, factor: float, seed: int, *, quick: bool = False) -> dict[str, Any]:
    """Ingest and train a cell of the table.

    Returns:
        Bytes of the tables that were made smaller with their maps, and the quality of the best weights.
    """
    trial = TRIALS[data]
    with TemporaryDirectory(prefix="shunter-hashing-") as name:
        os.environ["SHUNTER_HOME"] = name
        from shunter.ingestion.request import ingest_request
        from shunter.requests import TrainRequest

        files, smaller = write(data, Path(name), method, factor, quick=quick)
        entries = tuple(f"{field}={value}" for field, value in trial.set.items())
        request = TrainRequest(**files, model="dlrm", set=entries, seed=seed)
        dataset, _ = ingest_request(request)
        began = time.process_time()
        found = _train(request, dataset, replace(trial, epochs=1) if quick else trial)
        found["processor_seconds"] = time.process_time() - began
        return {"data": data, "method": method, "factor": factor, "seed": seed, **_bytes(dataset, smaller), **found}


def _train(request: Any, dataset: "Dataset", trial: Trial) -> dict[str, Any]:
    """Train by the product's executor, and score the test part."""
    from shunter.engine.config import Execution, Hyperparameters, Schedule
    from shunter.engine.job import TrainingJob
    from shunter.engine.loop.evaluation import evaluate
    from shunter.engine.loop.trainer import train
    from shunter.engine.overrides import read_overrides
    from shunter.models.registry import model_spec

    fixed = read_overrides("dlrm", request.architecture.settings)
    execution = Execution(threads=1, batch_size=trial.batch_size)
    schedule = Schedule(max_epochs=trial.epochs, patience=fixed.patience or 2, seed=request.seed)
    job = TrainingJob(
        dataset, model_spec("dlrm", **fixed.architecture), Hyperparameters(**fixed.learning), execution, schedule
    )
    result = train(job)
    test = evaluate(result.model, dataset, "test", execution).metrics
    return {
        "validation_ne": result.validation.ne,
        "test": {"ne": test.ne, "auc": test.auc},
        "epochs": len(result.history),
    }


def _bytes(dataset: "Dataset", smaller: list[Column]) -> dict[str, Any]:
    """What tables and maps take; the keys of what is exact in the quotient and remainder count as nothing."""
    from shunter.ingestion.tables import table_ids

    tables = {table.field: table for table in table_ids(dataset)}
    of_fewer = [tables[column.name] for column in smaller]
    return {
        "allowed_bytes": sum(column.bytes for column in smaller),
        "table_bytes": sum(FLOAT_BYTES * DIM * table.rows for table in of_fewer),
        "map_bytes": sum(table.map_bytes for table in of_fewer),
        "all_table_bytes": sum(FLOAT_BYTES * DIM * table.rows for table in tables.values()),
        "columns": {one.field: {"rows": one.rows, "map_bytes": one.map_bytes} for one in of_fewer},
    }


def main() -> None:
    """Run one cell and print it as the last line."""
    parser = argparse.ArgumentParser()
    for name, kind in {"data": str, "method": str, "factor": float, "seed": int}.items():
        parser.add_argument(name, type=kind)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    print(json.dumps(run(given.data, given.method, given.factor, given.seed, quick=given.quick)))


if __name__ == "__main__":
    main()
