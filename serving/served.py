"""The model that is served: what scores, what it is called, and who takes over from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from shunter.engine.checkpoint.stored import placement_of_tables, stored_tables
from shunter.errors import DataError
from shunter.ingestion.encoding.few_values import ValueEncoder
from shunter.ingestion.encoding.value_counts import ValueCounts
from shunter.models.embeddings.stored.tables import LookupCounts, StoredEmbeddings
from shunter.serving.errors import RefusedError
from shunter.serving.table import Table
from shunter.tracking.registry.best_items import BestItems, Seen
from shunter.tracking.registry.ranking_serving import RankingScorer

if TYPE_CHECKING:
    from shunter.ingestion.encoding.encoded import EncodedRows
    from shunter.tracking.registry.serving import Scorer


@dataclass(frozen=True)
class Answer:
    """The answer to one request.

    Attributes:
        scores: `[rows]` or `[rows, outputs]`; best items where they were wanted.
        counts: Values of the request by column.
    """

    scores: np.ndarray | pl.DataFrame
    counts: ValueCounts


Outcome = Answer | Exception


@dataclass(frozen=True)
class ServedModel:
    """A model as it answers.

    Attributes:
        name: What clients call it.
        version: Its version, as text.
        title: What messages call it.
        scorer: What scores its rows.
        items: Of a model that ranks, what its best items are chosen from, beside those of the request; None for those
            of the request alone.
        columns: Names of the columns that it reads.
        values: Encodes rows that came as Python's values.
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
    def tables(self) -> list[StoredEmbeddings]:
        """Its embedding tables that lie in a file; none where all are in memory."""
        return [] if isinstance(self.scorer, RankingScorer) else stored_tables(self.scorer.model)

    def placements(self) -> list[str]:
        """Where its embedding tables lie that are not whole in memory, a sentence for those of each member."""
        return [] if isinstance(self.scorer, RankingScorer) else placement_of_tables(self.scorer.model)

    def table_counts(self) -> LookupCounts:
        """Where the rows of these tables were found."""
        return sum((one.counts for one in self.tables), LookupCounts())

    def warm_from(self, former: "ServedModel") -> None:
        """Bring those rows into the caches that a former model has in its own, where the ids of both are the same."""
        pairs = list(zip(self.tables, former.tables, strict=False))
        if pairs and self.scorer.encoder.digest() == former.scorer.encoder.digest():
            for mine, theirs in pairs:
                if mine.rows == theirs.rows:
                    mine.warm(theirs.hot_rows())

    def kinds(self) -> dict[str, str]:
        """The columns with the datatypes that the open inference protocol would have them in."""
        encoder = self.scorer.encoder
        numbers = {field.name for field in encoder.numeric} | {field.column for field in encoder.categorical}
        names = (*encoder.columns, *encoder.optional_columns)
        return {name: "FP64" if name in numbers else "BYTES" for name in names}

    def score(self, tables: Sequence[Table]) -> list[Outcome]:
        """Score the rows of several requests.

        Rows in JSON, of texts and numbers, are encoded request by request; what takes the way of whole columns (CSV,
        Parquet, values of several types) is encoded together, which is most of its work. Each is scored by itself: a
        product of matrices may round a row's sums otherwise where it has other rows beside it, and a score must not
        depend on who else asks.

        Returns:
            For each table its answer, or why it has none.
        """
        outcomes: list[Outcome | None] = [None] * len(tables)
        alike: dict[tuple[tuple[str, pl.DataType], ...], list[tuple[int, dict[str, pl.Series]]]] = {}
        for place, table in enumerate(tables):
            try:
                if table.top is not None:
                    outcomes[place] = self._best_items(table, table.top)
                    continue
                self._check_columns(table)
                few = self.values.encode(table.columns, table.rows)
                if few is not None:
                    outcomes[place] = self._answer(few)
                    continue
                read = self._read(table)
            except Exception as error:
                outcomes[place] = error
                continue
            # Only columns of one type are put together, for a type in common could change a value.
            alike.setdefault(tuple((name, series.dtype) for name, series in read.items()), []).append((place, read))
        for group in alike.values():
            self._score_alike(group, tables, outcomes)
        return [outcome for outcome in outcomes if outcome is not None]

    def _check_columns(self, table: Table) -> None:
        """Raise a `DataError` for a column that is missing."""
        self.scorer.encoder.check_columns(table.columns, "The request", f"of {self.title}")

    def _read(self, table: Table) -> dict[str, pl.Series]:
        """The columns that the model reads.

        Raises:
            RefusedError: One holds what it cannot hold.
        """
        encoder = self.scorer.encoder
        several = encoder.columns_of_several
        found = {name: table.series(name) for name in sorted(self.columns) if name in table.columns}
        for name, series in found.items():
            if name not in several and series.dtype.is_nested():
                raise RefusedError(f"The column {name} holds lists: give one number, text or null in each row.")
        return found

    def _best_items(self, table: Table, top: int) -> Answer:
        """The best items for each user of a table, but those that stand beside the user, there or in `items`.

        Raises:
            DataError: The column of the user is missing.
            RefusedError: The model does not rank.
        """
        scorer = self.scorer
        if not isinstance(scorer, RankingScorer):
            raise RefusedError(f"`top` needs a model that ranks items, and {self.title} scores rows: leave it out.")
        if scorer.user not in table.columns:
            raise DataError(f"The request lacks the column {scorer.user} of {self.title}: name the users.")
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
            if len(group) > 1:  # what is wrong with one is not the others' fault
                for one in group:
                    self._score_alike([one], tables, outcomes)
            else:
                outcomes[group[0][0]] = error

    def _answer(self, rows: "EncodedRows") -> Answer:
        return Answer(self.scorer.score(rows), self.scorer.encoder.count(rows))
