"""Scoring one day from its raw rows, as a registered model scores them when it is served."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.checkpoint.storage import load_model
from ingestion.batch import RawBatch
from ingestion.encoding.encoder import Encoder
from ingestion.sources.days import DayLog, arrange_for
from models.ensemble import Ensemble
from retraining.bootstrap import log_losses
from tracking.registry.serving import Scorer
from tracking.registry.versions import ModelFiles

Keep = Callable[[RawBatch], NDArray[np.bool_]]


def losses_of(
    files: ModelFiles, log: DayLog, keep: Keep | None = None, member: int | None = None
) -> NDArray[np.float64]:
    """Log loss of each row of a day, in the order of its files: the same rows for every model.

    Args:
        files: Files of the model, with the encoder it was trained with; columns that the day lacks count as missing.
        log: Log of the day.
        keep: Which rows of a batch count; None is all.
        member: Number of the only member of an ensemble to score; None is the whole ensemble.

    Returns:
        float64 `[rows]`, in nats.

    Raises:
        CheckpointError: The model is damaged.
        DataError: The encoder or the day cannot be read.
    """
    encoder = Encoder.load(files.encoder)
    model = load_model(files.model)
    if member is not None and isinstance(model, Ensemble):
        model = model.models[member]
    scorer = Scorer(encoder, model)
    losses = []
    for batch in log.batches():
        rows = encoder.encode_columns(arrange_for(encoder, batch.columns, log.schema))
        labels = batch.labels
        if keep is not None:
            kept = keep(batch)
            rows, labels = rows.select(kept), labels[kept]
        if len(labels):
            logits = scorer.logits(rows)
            # Of several labels the first is the main one.
            losses.append(log_losses(labels.reshape(len(labels), -1)[:, 0], logits.reshape(len(labels), -1)[:, 0]))
    return np.concatenate(losses) if losses else np.empty(0)
