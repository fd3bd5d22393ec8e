"""The best items for users: what a model that ranks is for, by all scores and without an index."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from tracking.registry.ranking_serving import RankingScorer

USERS_AT_ONCE = 256  # whose scores of all items lie in memory together
_NO_PAIRS = pl.DataFrame(schema={"user": pl.String, "item": pl.String, "user_id": pl.Int64, "item_id": pl.Int64})


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

    def beside(self, pairs: pl.DataFrame) -> "Seen":
        """With more pairs, some of which may be here already."""
        items = pl.concat([self.items, _items_of(pairs)]).unique("item", maintain_order=True)
        return Seen(pl.concat([self.pairs, pairs]), items)


NOTHING = Seen.of([])


def users_of(pairs: pl.DataFrame) -> pl.DataFrame:
    """The users of pairs, each once, in their order: `user` and `user_id`."""
    return pairs.select("user", "user_id").unique("user", maintain_order=True)


def best_items(scorer: RankingScorer, users: pl.DataFrame, seen: Seen, top: int) -> Iterator[pl.DataFrame]:
    """Rank items for some users, without those that the user has.

    Args:
        scorer: What scores.
        users: As `users_of` has them.
        seen: The items, and what each user has.
        top: Items for each user.

    Yields:
        Some users at a time, rows with the user, the rank from 1, the item and its score; at least one frame.
    """
    items = seen.items
    places = items.select("item", place=pl.int_range(pl.len()))
    schema = {scorer.user: pl.String, "rank": pl.Int64, scorer.item: pl.String, "score": pl.Float64}
    if not len(users):
        yield pl.DataFrame(schema=schema)
    for some in users.iter_slices(USERS_AT_ONCE):
        scores = scorer.scores(some["user_id"].to_numpy(), items["item_id"].to_numpy())
        known = seen.pairs.join(some.select("user", row=pl.int_range(pl.len())), on="user").join(places, on="item")
        scores[known["row"].to_numpy(), known["place"].to_numpy()] = -np.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        found = np.take_along_axis(scores, best, axis=1)
        row, rank = np.nonzero(found > -np.inf)
        yield pl.DataFrame(
            {
                scorer.user: some["user"].gather(row),
                "rank": rank.astype(np.int64) + 1,
                scorer.item: items["item"].gather(best[row, rank]),
                "score": found[row, rank],
            },
            schema=schema,
        )
