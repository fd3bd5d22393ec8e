"""Served model: its scorer, its name and version, and the batch scoring of requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from shunter.engine.checkpoint.scoring import placement_of_tables
from shunter.engine.table_files import TABLES_IN_FILES, are_supported
from shunter.errors import DataError
from shunter.ingestion.encoding.columns import holder_of, with_parts
from shunter.ingestion.encoding.value_counts import ValueCounts
from shunter.models.embeddings.cache_counts import LookupCounts
from shunter.serving.errors import RefusedError
from shunter.serving.few_values import ValueEncoder
from shunter.serving.table import Table
from shunter.tracking.registry.best_items import BestItems, Seen
from shunter.tracking.registry.serving import RankingScorer

if TYPE_CHECKING:
    from shunter.extensions.tiers.stored.tables import StoredEmbeddings
    from shunter.ingestion.encoding.encoded import EncodedRows
    from shunter.tracking.registry.serving import Scorer


@dataclass(frozen=True)
class Answer:
    """Answer to one request.

    Attributes:
        scores: Scores, `[rows]` or `[rows, outputs]`; a table of best items if they were requested.
        counts: Counts of known and unusable values of the request, by column.
    """

    scores: np.ndarray | pl.DataFrame
    counts: ValueCounts


Outcome = Answer | Exception


@dataclass(frozen=True)
class ServedModel:
    """Loaded model that answers scoring requests.

    Attributes:
        name: Name of the model for clients.
        version: Version of the model, as text.
        title: Name of the model in messages.
        scorer: Scorer of rows, or of items for a ranking model.
        items: For a ranking model: candidate items, and the items to exclude for each user. None: the items of the
            request are the candidates.
        columns: Names of the columns that the model reads.
        values: Encoder of rows that are given as Python values.
    """

    name: str
    version: str
    title: str
    scorer: "Scorer | RankingScorer"
    items: BestItems | None = None
    columns: frozenset[str] = field(init=False)
    values: ValueEncoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        encoder = self.scorer.encoder
        object.__setattr__(self, "columns", frozenset([*encoder.columns, *encoder.optional_columns]))
        object.__setattr__(self, "values", ValueEncoder(encoder))

    @property
    def tables(self) -> "list[StoredEmbeddings]":
        """Embedding tables of the model that are read from a file; empty if all are in memory."""
        if isinstance(self.scorer, RankingScorer) or not are_supported():
            return []
        return TABLES_IN_FILES.load("stored_tables")(self.scorer.model)

    def placements(self) -> list[str]:
        """Return a sentence for each member about the storage of embedding tables that are not fully in memory."""
        return [] if isinstance(self.scorer, RankingScorer) else placement_of_tables(self.scorer.model)

    def table_counts(self) -> LookupCounts:
        """Return the numbers of rows of stored tables that were found in memory, and that were read from a file."""
        return sum((one.counts for one in self.tables), LookupCounts())

    def warm_from(self, former: "ServedModel") -> None:
        """Load the rows in a former model's caches into this model's caches, if both models use the same ids."""
        pairs = list(zip(self.tables, former.tables, strict=False))
        if pairs and self.scorer.encoder.digest() == former.scorer.encoder.digest():
            for mine, theirs in pairs:
                if mine.rows == theirs.rows:
                    mine.warm(theirs.hot_rows())

    def kinds(self) -> dict[str, str]:
        """Return the datatype of each column in the open inference protocol."""
        encoder = self.scorer.encoder
        numbers = {field.name for field in encoder.numeric} | {field.column for field in encoder.categorical}
        names = (*encoder.columns, *encoder.optional_columns)
        return {name: "FP64" if name in numbers else "BYTES" for name in names}

    def score(self, tables: Sequence[Table]) -> list[Outcome]:
        """Score the rows of several requests.

        JSON rows of texts and numbers are encoded request by request. Whole columns (CSV, Parquet, values of several
        types) are encoded together, since encoding is most of their work. Each request is scored separately: a matrix
        product may round differently if other rows are in the batch, and a score must not depend on other requests.

        Returns:
            For each request its answer, or the error that refuses it.
        """
        outcomes: list[Outcome | None] = [None] * len(tables)
        alike: dict[tuple[tuple[str, pl.DataType], ...], list[tuple[int, dict[str, pl.Series]]]] = {}
        for place, table in enumerate(tables):
            try:
                if table.top is not None:
                    outcomes[place] = self._best_items(table, table.top)
                    continue
                self.scorer.encoder.check_columns(table.columns, "The request", f"of {self.title}")
                few = self.values.encode(table.columns, table.rows)
                if few is not None:
                    outcomes[place] = self._answer(few)
                    continue
                read = self._read(table)
            except Exception as error:
                outcomes[place] = error
                continue
            # Only tables with the same column types are concatenated, since a cast to a common type could change a
            # value.
            alike.setdefault(tuple((name, series.dtype) for name, series in read.items()), []).append((place, read))
        for group in alike.values():
            self._score_alike(group, tables, outcomes)
        return [outcome for outcome in outcomes if outcome is not None]

    def _read(self, table: Table) -> dict[str, pl.Series]:
        """Return the columns that the model reads; raise RefusedError if a column of single values has lists."""
        encoder = self.scorer.encoder
        several = encoder.list_columns
        found = {name: table.series(name) for name in sorted(self.columns) if name in table.columns}
        holders = {name: holder_of(name, table.columns) for name in sorted(self.columns) if name not in found}
        parts = {name: holder for name, holder in holders.items() if holder is not None}
        found |= with_parts({name: table.series(name) for name in parts.values()}, [*parts], "the request")
        for name, series in found.items():
            if name not in several and series.dtype.is_nested():
                raise RefusedError(
                    f"The column {name} holds lists, but the model reads single values: give one number, text "
                    "or null in each row."
                )
        return found

    def _best_items(self, table: Table, top: int) -> Answer:
        """Return the best items for each user of a table, without the user's interactions there or in `items`."""
        scorer = self.scorer
        if not isinstance(scorer, RankingScorer):
            raise RefusedError(f"The key `top` needs a ranking model, but {self.title} scores rows: leave it out.")
        if scorer.user not in table.columns:
            raise DataError(f"The request lacks the user column {scorer.user} of {self.title}: add the column.")
        columns = {scorer.item: [None] * table.rows, **table.columns}
        read = self._read(Table(table.rows, {name: columns[name] for name in (scorer.user, scorer.item)}))
        asked = Seen.of(scorer, [pl.DataFrame(list(read.values()))])
        best = (self.items or BestItems(scorer, self.title)).of(asked.users, top, asked)
        return Answer(pl.concat(best), asked.counts)

    def _score_alike(
        self,
        group: Sequence[tuple[int, dict[str, pl.Series]]],
        tables: Sequence[Table],
        outcomes: list[Outcome | None],
    ) -> None:
        try:
            first = group[0][1]
            together = {name: pl.concat([read[name] for _, read in group], rechunk=True) for name in first}
            ends = np.cumsum([0, *(tables[place].rows for place, _ in group)]).tolist()
            rows = self.scorer.encoder.encode_table(together, ends[-1])
            for (place, _), (start, end) in zip(group, pairwise(ends), strict=True):
                outcomes[place] = self._answer(rows.part(start, end))
        except Exception as error:
            if len(group) > 1:  # score the requests separately, so that only the faulty one fails
                for one in group:
                    self._score_alike([one], tables, outcomes)
            else:
                outcomes[group[0][0]] = error

    def _answer(self, rows: "EncodedRows") -> Answer:
        return Answer(self.scorer.score(rows), self.scorer.encoder.count(rows))
