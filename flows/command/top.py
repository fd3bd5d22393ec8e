"""The best items for each user of a file: what a model that ranks is for."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from flows.command.predict import BLOCK_ROWS, Scored, check_out, writer
from ingestion.rows import read_rows
from shunter.errors import RequestError
from shunter.requests import DataFormat
from tracking.registry.named import open_model
from tracking.registry.ranking_serving import RankingScorer

USERS_AT_ONCE = 256  # whose scores of all items lie in memory together


def best_items_of_file(named: str, path: Path, out: str, top: int, *, data_format: DataFormat | None = None) -> Scored:
    """Rank the items of a file for each of its users, without those that stand beside the user there.

    Args:
        named: The model, as `tracking.registry.named.open_model` takes it.
        path: Rows of users and items, such as the log that the model was trained on.
        out: As of `flows.command.predict.predict_file`. Each user, in the order of the file, has `top` rows or as many
            as there are items left, the best first: the user, the rank from 1, the item and its score.
        top: Items for each user.
        data_format: Format of the rows; None to guess it.

    Raises:
        ShunterError: There is no such model, it does not rank, it is not what was signed, the rows cannot be read, or
            the file cannot be written.
    """
    check_out(out)
    if top < 1:
        raise RequestError(f"--top {top} asks for no item: use at least 1.")
    with open_model(named) as model:
        scorer = model.scorer()
        if not isinstance(scorer, RankingScorer):
            raise RequestError(
                f"--top {top} needs a model that ranks items, and {model.title} gives the probability of a click: "
                "leave it out, or train one such as --model ease."
            )
        if taken := {"rank", "score"} & {scorer.user, scorer.item}:
            raise RequestError(f"The column {taken.pop()} has the name of a result of --top: rename it in the log.")
        columns, optional = scorer.encoder.columns, scorer.encoder.optional_columns
        blocks = read_rows(path, columns, optional, BLOCK_ROWS, data_format)
        seen = pl.concat([_pairs(scorer, block) for block in blocks] or [_NO_PAIRS]).unique(maintain_order=True)
        with writer(out) as write:
            for ranked in _ranked(scorer, seen, top):
                write(ranked)
        return Scored(model.title, seen["user"].n_unique())


_NO_PAIRS = pl.DataFrame(schema={"user": pl.String, "item": pl.String, "user_id": pl.Int64, "item_id": pl.Int64})


def _pairs(scorer: RankingScorer, block: pl.DataFrame) -> pl.DataFrame:
    """Users and items of a block as they stand there, and their ids; the id 0 is what training did not know."""
    users, items = scorer.ids(block.to_pandas(use_pyarrow_extension_array=True))
    named = block.select(user=pl.col(scorer.user).cast(pl.String), item=pl.col(scorer.item).cast(pl.String))
    return named.with_columns(user_id=pl.Series(users), item_id=pl.Series(items)).unique(maintain_order=True)


def _ranked(scorer: RankingScorer, seen: pl.DataFrame, top: int) -> Iterator[pl.DataFrame]:
    """The rows of the result, some users at a time."""
    items = seen.filter(pl.col("item_id") != 0).select("item", "item_id").unique("item", maintain_order=True)
    users = seen.select("user", "user_id").unique("user", maintain_order=True)
    places = items.select("item", place=pl.int_range(pl.len()))
    schema = {scorer.user: pl.String, "rank": pl.Int64, scorer.item: pl.String, "score": pl.Float64}
    if not len(users):
        yield pl.DataFrame(schema=schema)
    for some in users.iter_slices(USERS_AT_ONCE):
        scores = scorer.scores(some["user_id"].to_numpy(), items["item_id"].to_numpy())
        known = seen.join(some.select("user", row=pl.int_range(pl.len())), on="user").join(places, on="item")
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
