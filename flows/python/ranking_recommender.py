"""Python object of a ranking model, which ranks the items of a log for users."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import torch

from shunter.engine.ranking.evaluation import evaluate_ranking
from shunter.engine.ranking.interactions import Interactions
from shunter.errors import UnsupportedError
from shunter.flows.python import frames
from shunter.flows.python.labelled import with_labels
from shunter.flows.python.recommender import Recommender, blocks_of, positive
from shunter.flows.python.training import figures_of
from shunter.ingestion.schema import Schema, read_schema
from shunter.tracking.registry.best_items import BestItems, Seen
from shunter.tracking.registry.serving import RankingScorer

LOG = "give a log as `seen`"


class RankingRecommender(Recommender[RankingScorer]):
    """Recommender with a ranking model."""

    def rank(self, users: Any = None, k: int = 10, *, items: Any = None, seen: Any = None) -> pd.DataFrame:
        """Return the best items for each user, with columns for user, `rank` from 1, item and `score`."""
        positive(k)
        log, dtypes = self._log if seen is None else self._seen_in(seen)
        if items is not None:
            log = replace(log, items=self._values(self._scorer.item, items).items)
        wanted = log.users if users is None else self._values(self._scorer.user, users).users
        best = self._best if seen is None and items is None else BestItems(self._scorer, self.title, log)
        found = pl.concat(best.of(wanted, k))
        return found.with_columns(pl.col(name).cast(dtype, strict=False) for name, dtype in dtypes.items()).to_pandas()

    def embed(self, items: Any, column: str | None = None) -> np.ndarray:
        """Return the learned vector of each value, float32 `[values, width]`; the vector of id 0 for unknown values."""
        scorer, ranker = self._scorer, self._scorer.ranker
        role = {None: "item", scorer.item: "item", scorer.user: "user"}.get(column)
        vectors = getattr(ranker, f"{role}_vectors", None)
        if vectors is None or getattr(ranker, "is_popularity", False):
            raise UnsupportedError("embed", self.title, f"vectors of {column or scorer.item}, which it has not learned")
        name = scorer.user if role == "user" else scorer.item
        values = frames.series_of(name, items)
        ids = self._ids(pl.DataFrame({**_nulls(scorer, len(values)), name: values}))
        return vectors[torch.from_numpy(ids[role == "item"])].numpy()

    def evaluate(self, frame: Any, *, schema: Any = None, seen: Any = None) -> pd.DataFrame:
        """Return the quality on labelled rows, one row of metrics for each label."""
        if schema is None:
            found = self._training_source("evaluate", "give the label as `schema`").schema
        else:
            found = read_schema(frames.schema_path(schema), Schema)
        rows = frames.polars_of(frame)
        chosen = Interactions.of(*self._pairs(rows, found))
        if seen is None:
            seen = self._training_files("evaluate", LOG)
        columns = (self._scorer.user, self._scorer.item, *found.label_columns)
        before = [*blocks_of(seen, columns, found.encoding)]
        known = Interactions.of(
            *map(np.concatenate, zip(*(self._pairs(block, found) for block in before), strict=True))
        )
        return pd.DataFrame([figures_of(evaluate_ranking(self._scorer.ranker, chosen, known, name="frame"))])

    def explain(self, frame: Any) -> pd.DataFrame:
        """Return what each value contributes to the score of its row, in log odds."""
        raise UnsupportedError("explain", self.title, "log odds of a click, and this model ranks")

    def _items_of_log(self, method: str) -> pd.Series:
        log, dtypes = self._log
        dtype = dtypes.get(self._scorer.item, pl.String)
        return pd.Series(log.items["item"].cast(dtype).to_list())

    @cached_property
    def _log(self) -> tuple[Seen, dict[str, pl.DataType]]:
        """Training log, with the types of its user and item columns."""
        return self._seen_in(self._training_files("rank", LOG))

    @cached_property
    def _best(self) -> BestItems:
        return BestItems(self._scorer, self.title, self._log[0])

    def _seen_in(self, data: Any) -> tuple[Seen, dict[str, pl.DataType]]:
        scorer = self._scorer
        blocks = [*blocks_of(data, (scorer.user, scorer.item), scorer.encoder.text_form.encoding)]
        names = (scorer.user, scorer.item)  # results have the integer types of the log
        types = {name: blocks[0][name].dtype for name in names if blocks and blocks[0][name].dtype.is_integer()}
        return Seen.of(scorer, blocks), types

    def _values(self, column: str, values: Any) -> Seen:
        """Return values of the user or the item column as a log in which the other column is empty."""
        found = frames.polars_of(values)[column] if frames.is_frame(values) else frames.series_of(column, values)
        return Seen.of(self._scorer, [pl.DataFrame({**_nulls(self._scorer, len(found)), column: found})])

    def _ids(self, rows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of user and item of raw rows; all other columns of the encoder count as missing."""
        table = {name: pl.Series([None] * rows.height, dtype=pl.String) for name in self._scorer.encoder.columns}
        table |= {name: rows[name] for name in (self._scorer.user, self._scorer.item)}
        return self._scorer.ids_of(self._scorer.encoder.encode_table(table, rows.height))

    def _pairs(self, rows: pl.DataFrame, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of user and item of the positive rows."""
        labelled = with_labels(rows, schema)
        labels = labelled.labels.reshape(len(labelled.labels), -1)[:, 0]
        return self._ids(labelled.rows.filter(pl.Series(labels > 0)))


def _nulls(scorer: RankingScorer, rows: int) -> dict[str, pl.Series]:
    return {name: pl.Series([None] * rows, dtype=pl.String) for name in (scorer.user, scorer.item)}
