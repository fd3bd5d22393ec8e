"""The best items for users: what a model that ranks is for, by all scores or by an index."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from shunter.engine.ranking.best import AllScores, Best, Search
from shunter.engine.ranking.item_index import MEASURED_AT, TRIED_USERS, MeasuredIndex, build_index, pays, why_exact
from shunter.errors import RequestError
from shunter.requests.serving import IndexChoice
from shunter.tracking.registry.ranking_serving import RankingScorer

USERS_AT_ONCE = 256  # whose items are written together
_NO_PAIRS = pl.DataFrame(schema={"user": pl.String, "item": pl.String, "user_id": pl.Int64, "item_id": pl.Int64})
_NOWHERE = np.empty(0, np.int64)


def pairs_of(scorer: RankingScorer, rows: pl.DataFrame) -> pl.DataFrame:
    """Users and items of raw rows as they stand there, and their ids; the id 0 is what training did not know.

    Raises:
        DataError: A column is missing.
    """
    encoded = scorer.encoder.encode_table({name: rows[name] for name in rows.columns}, rows.height)
    users, items = scorer.ids_of(encoded)
    named = rows.select(user=pl.col(scorer.user).cast(pl.String), item=pl.col(scorer.item).cast(pl.String))
    return named.with_columns(user_id=pl.Series(users), item_id=pl.Series(items)).unique(maintain_order=True)


def _items_of(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.filter(pl.col("item_id") != 0).select("item", "item_id").unique("item", maintain_order=True)


@dataclass(frozen=True)
class Seen:
    """What users have, and the items that are ranked.

    Attributes:
        pairs: As `pairs_of` has them.
        items: Items that training knew, each once, in their order: `item` and `item_id`.
    """

    pairs: pl.DataFrame
    items: pl.DataFrame

    @classmethod
    def of(cls, blocks: Iterable[pl.DataFrame]) -> Self:
        """From the pairs of several blocks."""
        pairs = pl.concat([_NO_PAIRS, *blocks]).unique(maintain_order=True)
        return cls(pairs, _items_of(pairs))


NOTHING = Seen.of([])


def users_of(pairs: pl.DataFrame) -> pl.DataFrame:
    """The users of pairs, each once, in their order: `user` and `user_id`."""
    return pairs.select("user", "user_id").unique("user", maintain_order=True)


class BestItems:
    """Ranks the items of a log for users, without those that stand beside them there.

    Args:
        scorer: What scores.
        title: What messages call the model.
        seen: The items, and what each user has.
        choice: How the best are found; `auto` builds an index where that pays and keeps the recall.
        lengths: Lengths of a list for which the recall of an index is measured.
        expected_users: Users who will be asked for; None where nobody knows, as of a server.

    Attributes:
        told: How the best are found, in a sentence.
        measured: The index; None where all scores are compared.
        users: Users who were answered.

    Raises:
        RequestError: An index is asked for that cannot be had, or finds too little.
    """

    def __init__(
        self,
        scorer: RankingScorer,
        title: str,
        seen: Seen = NOTHING,
        *,
        choice: IndexChoice = IndexChoice.EXACT,
        lengths: Sequence[int] = MEASURED_AT,
        expected_users: int | None = None,
    ) -> None:
        self._scorer, self._items = scorer, seen.items["item"]
        self._place = {item: place for place, item in enumerate(self._items.to_list())}
        places = seen.items.select("item", place=pl.int_range(pl.len()))
        pairs = seen.pairs.join(places, on="item", how="inner", maintain_order="left")
        self._seen = _Places(pairs["user"], pairs["place"])
        self.users = 0
        self.measured: MeasuredIndex | None = None
        self.told = ""
        self._search = self._searched(title, seen, choice, lengths, expected_users)

    def of(self, users: pl.DataFrame, top: int, beside: Seen = NOTHING) -> Iterator[pl.DataFrame]:
        """Rank items for some users.

        Args:
            users: As `users_of` has them.
            top: Items for each user.
            beside: More that users have, and more items, some of which may be known already.

        Yields:
            Some users at a time, rows with the user, the rank from 1, the item and its score; at least one frame.
        """
        scorer = self._scorer
        schema = {scorer.user: pl.String, "rank": pl.Int64, scorer.item: pl.String, "score": pl.Float64}
        if not len(users):
            yield pl.DataFrame(schema=schema)
        more = beside.items.filter(~beside.items["item"].is_in(self._place.keys())) if len(beside.items) else None
        if more is not None and len(more):
            rest = BestItems(scorer, "", Seen(beside.pairs, more))
            items = pl.concat([self._items, rest._items])
        else:
            rest, items = None, self._items
        own = None
        if len(beside.pairs):
            named = [self._place.get(item, -1) for item in beside.pairs["item"].to_list()]
            own = _Places(beside.pairs["user"], pl.Series(named, dtype=pl.Int64))
        for some in users.iter_slices(USERS_AT_ONCE):
            ids, names = some["user_id"].to_numpy(), some["user"].to_list()
            without = self._seen.of(names)
            if own is not None:
                without = [np.union1d(one, other) for one, other in zip(without, own.of(names), strict=True)]
            found = self._search.best(ids, top, without)
            if rest is not None:
                others = rest._search.best(ids, top, rest._seen.of(names))
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
            self.told = f"{found}: {reason}." if reason and choice is IndexChoice.AUTO else f"{found}."
            return AllScores(ranker, items)
        users = users_of(seen.pairs)
        known = users.filter(pl.Series(ranker.user_degrees.numpy()[users["user_id"].to_numpy()] > 0))
        tried = known.sample(min(TRIED_USERS, len(known)), shuffle=True, seed=0)
        try:
            ids, without = tried["user_id"].to_numpy(), self._seen.of(tried["user"].to_list())
            index = build_index(ranker, items, (ids, without), lengths, title=title)
        except RequestError as error:
            if choice is IndexChoice.APPROXIMATE:
                raise
            self.told = f"{found}: {error}"
            return AllScores(ranker, items)
        self.measured = index.measured
        self.told = index.measured.in_words() if index.measured else found
        return index


class _Places:
    """The places of the items that each user has, one user's after another's.

    Args:
        users: Who has an item, one of each pair.
        places: Its place; -1 where it has none.
    """

    def __init__(self, users: pl.Series, places: pl.Series) -> None:
        pairs = pl.DataFrame({"user": users, "place": places.cast(pl.Int64)}).filter(
            (pl.col("place") >= 0) & pl.col("user").is_not_null()
        )
        grouped = pairs.group_by("user", maintain_order=True).agg("place")
        self._rows = {name: row for row, name in enumerate(grouped["user"].to_list())}
        self._ends = np.cumsum([0, *grouped["place"].list.len().to_list()])
        self._places = grouped["place"].explode().drop_nulls().to_numpy()

    def of(self, names: Sequence[str]) -> list[np.ndarray]:
        """Those of some users."""
        rows = [self._rows.get(name) for name in names]
        return [_NOWHERE if row is None else self._places[self._ends[row] : self._ends[row + 1]] for row in rows]


def _rows_of(found: Best, users: pl.Series, items: pl.Series, schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    """A row for each item that was found."""
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
