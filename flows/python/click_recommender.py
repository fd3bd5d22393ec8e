"""Python object of a click model, which ranks items by the predicted click probability of each (user, item) pair."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import torch

from shunter.engine.metrics import compute_task_metrics, predict
from shunter.errors import RequestError, UnsupportedError
from shunter.flows.python import frames
from shunter.flows.python.labelled import with_labels
from shunter.flows.python.recommender import BLOCK_ROWS, Recommender, positive
from shunter.flows.python.training import TASK, figures_of
from shunter.ingestion.schema import Schema, read_schema
from shunter.ingestion.sources.open import numbered
from shunter.tracking.registry.row_scorer import ROWS_AT_ONCE
from shunter.tracking.registry.serving import Scorer

if TYPE_CHECKING:
    from shunter.ingestion.encoding.encoded import EncodedRows


class ClickRecommender(Recommender[Scorer]):
    """Recommender with a click model, or an ensemble of click models."""

    def rank(self, users: Any = None, k: int = 10, *, items: Any = None, seen: Any = None) -> pd.DataFrame:
        """Return the best items for each user, with columns for user, `rank` from 1, item and `score`."""
        positive(k)
        if users is None or items is None or not frames.is_frame(users) or not frames.is_frame(items):
            raise UnsupportedError(
                "rank", self.title, "a frame of users and a frame of items, which it scores in pairs"
            )
        if seen is not None:
            raise UnsupportedError("rank", self.title, "no `seen`, which only ranking models take")
        of_users, of_items = frames.polars_of(users), frames.polars_of(items)
        encoder = self._scorer.encoder
        both = [name for name in of_users.columns if name in of_items.columns]
        if both:
            raise RequestError(f"The column {both[0]} is in both frames: leave it out of one of them.")
        encoder.check_columns([*of_users.columns, *of_items.columns], "The two frames")
        found = []
        for user in of_users.iter_slices(max(1, BLOCK_ROWS // max(1, of_items.height))):
            pairs = user.join(of_items, how="cross", maintain_order="left_right")
            scores = self._scorer.score_block(pairs)[0].reshape(user.height, of_items.height, -1)[:, :, 0]
            best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            rows = np.repeat(np.arange(user.height), best.shape[1])
            ranks = pl.Series("rank", np.tile(np.arange(1, best.shape[1] + 1), user.height))
            chosen = pl.Series("score", np.take_along_axis(scores, best, axis=1).ravel())
            found.append(
                pl.concat([user[rows], ranks.to_frame(), of_items[best.ravel()], chosen.to_frame()], how="horizontal")
            )
        return pl.concat(found).to_pandas() if found else pd.DataFrame()

    def embed(self, items: Any, column: str | None = None) -> np.ndarray:
        """Return the learned vector of each value, float32 `[values, width]`; the vector of id 0 for unknown values."""
        encoder = self._scorer.encoder
        field = next(
            (one for one in encoder.categorical if one.name == column and not one.multi_valued and not one.cross), None
        )
        if field is None or field.column is not None:
            names = [
                one.name for one in encoder.categorical if not one.multi_valued and one.column is None and not one.cross
            ]
            raise UnsupportedError("embed", self.title, f"`column`, one of {', '.join(names)}")
        values = frames.series_of(field.name, items)
        rows = pl.DataFrame({name: pl.Series([None] * len(values), dtype=pl.String) for name in encoder.columns})
        rows = rows.with_columns(values)
        encoded = encoder.encode_table(dict(zip(rows.columns, rows, strict=True)), rows.height)
        position = [one.name for one in self._scorer.model.features.categorical].index(field.name)
        model = self._scorer.model
        members = getattr(model, "models", [model])
        return np.concatenate([self._vectors(encoded, member, position) for member in members], axis=1)

    def evaluate(self, frame: Any, *, schema: Any = None, seen: Any = None) -> pd.DataFrame:
        """Return the quality on labelled rows, one row of metrics for each label."""
        if seen is not None:
            raise UnsupportedError("evaluate", self.title, "no `seen`, which only ranking models take")
        if schema is None:
            found = self._training_source("evaluate", "give the labels as `schema`").schema
        else:
            found = read_schema(frames.schema_path(schema), Schema)
        number = self._scorer.model.features.number
        labelled = with_labels(frames.polars_of(frame), found if number is None else numbered(found, number.loss))
        self._scorer.encoder.check_columns(labelled.rows.columns)
        tasks = self._scorer.outputs
        shape = labelled.labels.shape
        metrics = compute_task_metrics(
            tasks, labelled.labels, self._logits(labelled.rows).reshape(shape), labelled.weights, number
        )
        rows = [figures_of(metrics), *(figures_of(metrics.others[task]) for task in tasks[1:])]
        return pd.DataFrame(rows, index=pd.Index(tasks, name=TASK) if len(tasks) > 1 else None)

    def explain(self, frame: Any) -> pd.DataFrame:
        """Return what each value contributes to the score of its row, in log odds."""
        rows = frames.polars_of(frame)
        self._scorer.encoder.check_columns(rows.columns)
        whole = self._effects_on(rows)
        effects = {
            name: whole - self._effects_on(rows.with_columns(pl.lit(None, rows[name].dtype).alias(name)))
            for name in self.columns
        }
        return pd.DataFrame(effects, index=frames.index_of(frame))

    def _effects_on(self, rows: pl.DataFrame) -> np.ndarray:
        """Return the explained output, `[rows]`: log odds of the main label, or the predicted number."""
        logits, number = self._logits(rows)[:, 0], self._scorer.model.features.number
        return logits if number is None else predict(logits, number)

    def _logits(self, rows: pl.DataFrame) -> np.ndarray:
        """Return the log odds of raw rows, float32 `[rows, labels]`."""
        found = [np.empty((0, len(self._scorer.outputs)), np.float32)]
        for block in rows.iter_slices(ROWS_AT_ONCE):
            encoded = self._scorer.encoder.encode_table(dict(zip(block.columns, block, strict=True)), block.height)
            found.append(self._scorer.logits(encoded).reshape(block.height, -1))
        return np.concatenate(found)

    @torch.no_grad()
    def _vectors(self, rows: "EncodedRows", member: Any, position: int) -> np.ndarray:
        """Return the vectors that a member looks up for the field at a position, float32 `[rows, width]`."""
        found = []
        cuts = [*range(0, len(rows), ROWS_AT_ONCE), len(rows)]
        fields = member.features.categorical
        for cut in pairwise(cuts):
            looked_up = member.layer_inputs(*self._scorer.batch(rows.part(*cut)).inputs)[1]
            widths = [1 if looked_up.shape[1] == len(fields) else field.length or 1 for field in fields]
            found.append(looked_up[:, sum(widths[:position])].float().numpy())
        return np.concatenate(found)
