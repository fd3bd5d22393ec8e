"""Recommendation of the best items for users by a ranking model, exactly or approximately with an index."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import polars as pl

from shunter.engine.ranking.best import AllScores, Best, Search
from shunter.engine.ranking.item_index import MEASURED_AT, TRIED_USERS, MeasuredIndex, build_index, pays, why_exact
from shunter.errors import RequestError
from shunter.ingestion.batch import MISSING_KEY
from shunter.ingestion.encoding.columns import keys as keys_of
from shunter.ingestion.encoding.value_counts import ValueCounts
from shunter.requests.effort import IndexChoice
from shunter.tracking.registry.serving import RankingScorer

USERS_AT_ONCE = 256  # users in one yielded frame
_NO_PAIRS = pl.DataFrame(
    schema={"user": pl.String, "user_key": pl.UInt64, "user_id": pl.Int64}
    | {"item": pl.String, "item_key": pl.UInt64, "item_id": pl.Int64}
)
_NOWHERE = np.empty(0, np.int64)


def _pairs_of(scorer: RankingScorer, rows: pl.DataFrame) -> tuple[pl.DataFrame, ValueCounts]:
    """Return the distinct (user, item) pairs of raw rows, and the counts of their values.

    A value has the text of its first row. The key of a value is the encoder's key: equal for `5`, `5.0` and ` 5 `, and
    0 for a missing value. The id of a value that is not in the model's vocabulary is 0.
    """
    columns: dict[str, pl.Series] = {}
    flags: list[np.ndarray] = []
    for role, field in (("user", scorer.user_field), ("item", scorer.item_field)):
        series = scorer.encoder.plain(rows[field.name], is_number=field.key_kind == "number")
        keys = keys_of(series, field.key_kind)
        ids = field.ids.ids(keys)
        flags.append(field.flags(series, keys, ids))
        columns |= {
            role: series.cast(pl.String),
            f"{role}_key": pl.Series(keys),
            f"{role}_id": pl.Series(ids).cast(pl.Int64),
        }
    counts = ValueCounts.of((scorer.user, scorer.item), np.stack(flags))
    return _distinct(pl.DataFrame(columns), "user_key", "item_key"), counts


def _distinct(pairs: pl.DataFrame, *keys: str) -> pl.DataFrame:
    return pairs.unique(keys, keep="first", maintain_order=True)


@dataclass(frozen=True)
class Seen:
    """Interactions of users in a log, which are not recommended again, and the candidate items.

    Attributes:
        pairs: Distinct (user, item) pairs, with the raw texts `user` and `item`, and the keys and ids of both.
        items: Distinct items of the model's vocabulary, in order of first occurrence: `item`, `item_key`, `item_id`.
        counts: Counts of known, unknown and missing values of the raw rows.
    """

    pairs: pl.DataFrame
    items: pl.DataFrame
    counts: ValueCounts

    @classmethod
    def of(cls, scorer: RankingScorer, blocks: Iterable[pl.DataFrame] = ()) -> Self:
        """Collect the interactions of blocks of raw rows; a null is not a user or an item."""
        pairs, counts = [_NO_PAIRS], ValueCounts.of((scorer.user, scorer.item))
        for block in blocks:
            found, of_block = _pairs_of(scorer, block)
            pairs.append(found)
            counts += of_block
        every = _distinct(pl.concat(pairs), "user_key", "item_key")
        known = every.filter(pl.col("item_id") != 0).select("item", "item_key", "item_id")
        return cls(every, _distinct(known, "item_key"), counts)

    @property
    def users(self) -> pl.DataFrame:
        """Distinct users in order of first occurrence: `user`, `user_key` and `user_id`."""
        return _distinct(self.pairs.select("user", "user_key", "user_id"), "user_key")


class BestItems:
    """Recommender that ranks the items of a log for each user, without the items of the user's interactions.

    Args:
        scorer: Ranking model with its encoder.
        title: Name of the model in messages.
        seen: Candidate items, and the interactions of each user.
        choice: Search method; `auto` builds an index if that is faster and the recall is high enough.
        lengths: Numbers of recommended items (k) for which the recall of an index is measured.
        expected_users: Number of users to recommend for; None if unknown, as for a server.

    Attributes:
        search_sentence: Sentence about the search method.
        measured: Size and recall of the index; None if all scores are compared.
        users: Number of users ranked so far.

    Raises:
        RequestError: The requested index is not possible for this model, or its recall is too low.
    """

    def __init__(
        self,
        scorer: RankingScorer,
        title: str,
        seen: Seen | None = None,
        *,
        choice: IndexChoice = IndexChoice.EXACT,
        lengths: Sequence[int] = MEASURED_AT,
        expected_users: int | None = None,
    ) -> None:
        seen = seen or Seen.of(scorer)
        self._scorer, self._items = scorer, seen.items["item"]
        self._place = {key: place for place, key in enumerate(seen.items["item_key"].to_list())}
        places = seen.items.select("item_key", place=pl.int_range(pl.len()))
        pairs = seen.pairs.join(places, on="item_key", how="inner", maintain_order="left")
        self._seen = _Places(pairs["user_key"], pairs["place"])
        self.users = 0
        self.measured: MeasuredIndex | None = None
        self.search_sentence = ""
        self._search = self._searched(title, seen, choice, lengths, expected_users)

    def of(self, users: pl.DataFrame, top: int, beside: Seen | None = None) -> Iterator[pl.DataFrame]:
        """Yield the best items of users, `USERS_AT_ONCE` users at a time.

        Args:
            users: Frame with the columns of `Seen.users`.
            top: Number of items for each user.
            beside: Additional interactions and candidate items, which may overlap with `seen`.

        Yields:
            Frames with a row for each user and item: user, rank from 1, item and score; at least one frame.
        """
        scorer = self._scorer
        schema = {scorer.user: pl.String, "rank": pl.Int64, scorer.item: pl.String, "score": pl.Float64}
        if not len(users):
            yield pl.DataFrame(schema=schema)
        beside = beside or Seen.of(scorer)
        more = beside.items.filter([key not in self._place for key in beside.items["item_key"].to_list()])
        if len(more):
            rest = BestItems(scorer, "", replace(beside, items=more))
            items = pl.concat([self._items, rest._items])
        else:
            rest, items = None, self._items
        own = None
        if len(beside.pairs):
            places = [self._place.get(key, -1) for key in beside.pairs["item_key"].to_list()]
            own = _Places(beside.pairs["user_key"], pl.Series(places, dtype=pl.Int64))
        for some in users.iter_slices(USERS_AT_ONCE):
            ids, keys = some["user_id"].to_numpy(), some["user_key"].to_list()
            without = self._seen.of(keys)
            if own is not None:
                without = [np.union1d(one, other) for one, other in zip(without, own.of(keys), strict=True)]
            found = self._search.best(ids, top, without)
            if rest is not None:
                others = rest._search.best(ids, top, rest._seen.of(keys))
                others.places[others.places >= 0] += len(self._items)
                found = found.beside(others)
            self.users += len(some)
            yield _rows_of(found, some["user"], items, schema)

    def _searched(
        self, title: str, seen: Seen, choice: IndexChoice, lengths: Sequence[int], expected_users: int | None
    ) -> Search:
        ranker, items = self._scorer.ranker, seen.items["item_id"].to_numpy()
        found = f"The best of {len(items):,} items are found by all scores (exact)"
        reason = why_exact(ranker)
        if choice is IndexChoice.EXACT or (
            choice is IndexChoice.AUTO and (reason or not pays(len(items), expected_users))
        ):
            self.search_sentence = f"{found}: {reason}." if reason and choice is IndexChoice.AUTO else f"{found}."
            return AllScores(ranker, items)
        users = seen.users
        known = users.filter(pl.Series(ranker.user_degrees.numpy()[users["user_id"].to_numpy()] > 0))
        tried = known.sample(min(TRIED_USERS, len(known)), shuffle=True, seed=0)
        try:
            ids, without = tried["user_id"].to_numpy(), self._seen.of(tried["user_key"].to_list())
            index = build_index(ranker, items, (ids, without), lengths, title=title)
        except RequestError as error:
            if choice is IndexChoice.APPROXIMATE:
                raise
            self.search_sentence = f"{found}: {error}"
            return AllScores(ranker, items)
        self.measured = index.measured
        self.search_sentence = index.measured.as_text() if index.measured else found
        return index


class _Places:
    """Positions of the items of each user's interactions among the candidate items."""

    def __init__(self, users: pl.Series, places: pl.Series) -> None:
        pairs = pl.DataFrame({"user": users, "place": places.cast(pl.Int64)}).filter(
            (pl.col("place") >= 0) & (pl.col("user") != MISSING_KEY)
        )
        grouped = pairs.group_by("user", maintain_order=True).agg("place")
        self._rows = {key: row for row, key in enumerate(grouped["user"].to_list())}
        self._ends = np.cumsum([0, *grouped["place"].list.len().to_list()])
        self._places = grouped["place"].explode().drop_nulls().to_numpy()

    def of(self, keys: Sequence[int]) -> list[np.ndarray]:
        """Return, for each user key, the positions of the user's items; empty for an unknown user."""
        rows = [self._rows.get(key) for key in keys]
        return [_NOWHERE if row is None else self._places[self._ends[row] : self._ends[row + 1]] for row in rows]


def _rows_of(found: Best, users: pl.Series, items: pl.Series, schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    """Return a frame with a row for each recommended item: user, rank from 1, item and score."""
    row, rank = np.nonzero(found.places >= 0)
    user, place, item, score = schema
    return pl.DataFrame(
        {
            user: users.gather(row),
            place: rank.astype(np.int64) + 1,
            item: items.gather(found.places[row, rank]),
            score: found.scores[row, rank],
        },
        schema=schema,
    )
