"""Scoring of one day from its raw rows, exactly as a registered model scores rows when served.

Embedding tables that are larger than the free memory are read from their file, with the same scores.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.scoring import described, memory_for_tables
from shunter.engine.checkpoint.storage import load_model
from shunter.engine.metrics import row_losses
from shunter.engine.table_files import TABLES_IN_FILES
from shunter.ingestion.batch import RawBatch
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.row_filter import with_negatives
from shunter.ingestion.sources.days import DayLog, arrange_for
from shunter.models.ensemble import Ensemble
from shunter.models.spec import NumberLabel
from shunter.tracking.registry.serving import Scorer
from shunter.tracking.registry.versions import ModelFiles

Keep = Callable[[RawBatch], NDArray[np.bool_]]


def losses_of(
    files: ModelFiles, log: DayLog, keep: Keep | None = None, member: int | None = None
) -> NDArray[np.float64]:
    """Return the loss of each row of a day, in the order of its files: the same rows for every model.

    Args:
        files: Files of the model, with its encoder; columns that the day lacks count as missing.
        log: Log of the day.
        keep: Returns which rows of a batch count; None counts all.
        member: Number of the only member of an ensemble to score; None scores the whole ensemble.

    Returns:
        Log losses in nats, or losses of numbers, float64 `[rows]`.

    Raises:
        CheckpointError: The model is damaged.
        DataError: The encoder or the day cannot be read.
    """
    labels, logits, _ = scores_of(files, log, keep, member)
    return row_losses(labels, logits, number_of(files))


def number_of(files: ModelFiles) -> NumberLabel | None:
    """Return the label that a model predicts if it is a number; None for clicks and for models that rank.

    Raises:
        CheckpointError: The description of the model is damaged.
    """
    path = files.model / "model.json"
    return described(path)[0].number if "members" in read_json(path) else None


def scores_of(
    files: ModelFiles, log: DayLog, keep: Keep | None = None, member: int | None = None, *, unit: str | None = None
) -> tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.uint64] | None]:
    """Return labels and outputs, such as log odds, of each row of a day, for the main label; see `losses_of`.

    Args:
        files: Files of the model.
        log: Log of the day.
        keep: Returns which rows of a batch count; None counts all.
        member: Number of the only member of an ensemble to score; None scores the whole ensemble.
        unit: Column of the independent units, such as users.

    Returns:
        Labels and outputs, each `[rows]`, and the key of each row's unit; None if the day has no such column.
    """
    encoder = Encoder.load(files.encoder)
    log = log.as_read_by(encoder).with_crosses_of(encoder)
    log = replace(log, source=with_negatives(log.source))  # the same rows for each model
    memory_bytes = memory_for_tables(files.model)
    if memory_bytes is None:
        model = load_model(files.model)
    else:
        model = TABLES_IN_FILES.load("load_stored_model")(files.model, memory_bytes)
    if member is not None and isinstance(model, Ensemble):
        model = model.models[member]
    scorer = Scorer(encoder, model)
    columns = [field.column for field in log.schema.categorical]
    labels, logits, units = [], [], []
    for batch in log.batches():
        rows = encoder.encode_columns(arrange_for(encoder, batch.columns, log.schema))
        kept = np.ones(len(batch.labels), dtype=bool) if keep is None else keep(batch)
        if not kept.any():
            continue
        rows = rows if kept.all() else rows.select(kept)
        if unit in columns:
            units.append(batch.columns.keys[columns.index(unit), kept])
        count = int(kept.sum())
        labels.append(batch.labels[kept].reshape(count, -1)[:, 0])
        logits.append(scorer.logits(rows).reshape(count, -1)[:, 0])
    if not labels:
        return np.empty(0), np.empty(0), None
    return np.concatenate(labels), np.concatenate(logits), np.concatenate(units) if units else None
