"""Scoring of the raw rows of one day, exactly as a served model scores rows.

Embedding tables that are larger than the free memory are read from their file; the scores are the same.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.scoring import memory_for_tables, read_architectures
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
    """Return the loss of each row of a day, in the order of its files, which is the same for every model.

    Args:
        files: Files of the model, with its encoder; columns that the day lacks count as missing.
        log: Log of the day.
        keep: Function that returns a mask of the rows of a batch to score; None scores all rows.
        member: Number of the only member of an ensemble to score; None scores the whole ensemble.

    Returns:
        Log losses in nats, or losses of numeric labels, float64 `[rows]`.

    Raises:
        CheckpointError: The model is damaged.
        DataError: The encoder or the day cannot be read.
    """
    labels, logits, _ = scores_of(files, log, keep, member)
    return row_losses(labels, logits, number_of(files))


def number_of(files: ModelFiles) -> NumberLabel | None:
    """Return the numeric label that a model predicts; None for click models and ranking models.

    Raises:
        CheckpointError: The description of the model is damaged.
    """
    path = files.model / "model.json"
    return read_architectures(path)[0].number if "members" in read_json(path) else None


def scores_of(
    files: ModelFiles, log: DayLog, keep: Keep | None = None, member: int | None = None, *, unit: str | None = None
) -> tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.uint64] | None]:
    """Return labels and outputs, such as log odds, of each row of a day, for the main label; see `losses_of`.

    Args:
        files: Files of the model.
        log: Log of the day.
        keep: Function that returns a mask of the rows of a batch to score; None scores all rows.
        member: Number of the only member of an ensemble to score; None scores the whole ensemble.
        unit: Column of the statistically independent units, such as users.

    Returns:
        Labels and outputs, each `[rows]`; and the key of each row's unit, or None without the column `unit`.
    """
    encoder = Encoder.load(files.encoder)
    log = log.as_read_by(encoder).with_crosses_of(encoder)
    log = replace(log, source=with_negatives(log.source))  # the same negatives for each model
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
