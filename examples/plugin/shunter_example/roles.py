"""A loss, a metric, a reader of logs, a callback and two search methods."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor, nn

from shunter.errors import DataError
from shunter.files import replacing
from shunter.ingestion.batch import Source
from shunter.ingestion.schema import Schema, read_schema
from shunter.ingestion.sources.open import find_files
from shunter.ingestion.sources.tabular import ParquetSource
from shunter.search.context import SearchContext
from shunter.search.methods.registry import build_method
from shunter.search.protocol import BudgetLeft, Outcome, Parameters
from shunter.search.study.storage import finished_trials, has_result, lowest_loss
from shunter.tracking.callbacks import CalledTraining
from shunter.tracking.registry.models import RegisteredModel


def poly_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the PolyLoss of each label (Leng et al., ICLR 2022), whose slope stays steeper for easy samples."""
    losses = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    return losses + 1 - (-losses).exp()


def brier_score(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the mean squared difference between label and predicted probability."""
    return float(np.average((1 / (1 + np.exp(-logits)) - labels) ** 2, weights=weights))


def open_jsonl(argument: str, schema_file: str | None, downloads: Path) -> Source:
    """Open a file of JSON lines, by way of a Parquet file of the same rows.

    Raises:
        DataError: The file cannot be found, or no schema is given.
    """
    [path] = find_files(argument)
    if schema_file is None:
        raise DataError(f"{path} needs a schema: give its file with --schema.")
    table = downloads / f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.parquet"
    if not table.exists():
        downloads.mkdir(parents=True, exist_ok=True)
        with replacing(table) as partial:
            pl.read_ndjson(path).write_parquet(partial)
    return ParquetSource(path.stem, read_schema(schema_file, Schema), (table,))


class Journal:
    """Callback that appends a line of JSON to the file `JOURNAL` for each thousandth step, epoch, trial and version."""

    def on_step(self, training: CalledTraining, step: int, total_steps: int) -> None:
        """Write the progress of a training; this method must be fast."""
        if step % 1000 == 0 or step == total_steps:
            self._write("step", training.name, step)

    def on_epoch(self, training: CalledTraining, report: Any) -> None:
        """Write the seconds of a training after an epoch, and log them per step to the MLflow run of the training."""
        self._write("epoch", training.name, report.epoch)
        if training.run is not None:
            training.run.log_metrics({"journal.step_seconds": report.train_seconds / report.step}, step=report.epoch)

    def on_trial(self, training: CalledTraining, parameters: Mapping[str, Any], outcome: Outcome) -> None:
        """Write how a trial of the search ended."""
        self._write("trial", training.name, outcome.state)

    def on_registered(self, model: RegisteredModel) -> None:
        """Write the version that was registered."""
        self._write("registered", model.name, model.version)

    def _write(self, *event: object) -> None:
        if path := os.environ.get("JOURNAL"):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")


JOURNAL = Journal()


class Shuffled:
    """Draws each parameter at random from its values, after the first default."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next point to train; seeded by its number, so that a resumed search proposes the same points."""
        context, number = self._context, len(self._context.study.trials)
        if not number:
            return context.space.defaults()[0]
        random = Random(f"{context.seed} {number}")
        return {name: random.choice(values) for name, values in context.space.factors().items()}

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Learn nothing from a trial."""


class Patient:
    """Ends a search after three trials in a row without a better one; proposes the points of `shuffled`."""

    def __init__(self, context: SearchContext) -> None:
        self._study, self._inner, self._is_over = context.study, build_method("shuffled", context), False
        self.comparison = getattr(self._inner, "comparison", None)

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next point to train; None ends the search, also for trials that run beside it."""
        self._is_over = self._is_over or self._trials_without_gain() >= 3
        return None if self._is_over else self._inner.ask(left)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Pass the outcome to the wrapped method."""
        self._inner.tell(parameters, outcome)

    def _trials_without_gain(self) -> int:
        """Count the trials since the best one; the study also has those of an interrupted attempt."""
        losses = [lowest_loss(trial) if has_result(trial) else math.inf for trial in finished_trials(self._study)]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0
