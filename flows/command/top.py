"""Ranking of the best items for each user of a file, by a ranking model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shunter.errors import RequestError
from shunter.flows.command.predict import BLOCK_ROWS, Scored, check_out, writer
from shunter.ingestion.rows import read_rows
from shunter.requests import IndexChoice
from shunter.tracking.registry.best_items import BestItems, Seen
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.serving import RankingScorer


@dataclass(frozen=True)
class Ranked(Scored):
    """Result of ranking items for the users of a file.

    Attributes:
        how: Sentence that names the search method for the best items.
    """

    how: str


def best_items_of_file(
    named: str,
    data: str | Path | Sequence[str],
    out: str,
    top: int,
    *,
    data_format: str | None = None,
    index: IndexChoice = IndexChoice.AUTO,
    max_unknown: float | None = None,
) -> Ranked:
    """Rank the items of files for each user of the files, without the items of the user's rows.

    Args:
        named: Name of the model for `shunter.tracking.registry.named.open_model`.
        data: Files with rows of users and items, such as the training log, for `shunter.ingestion.rows.read_rows`.
        out: File for the result, `.csv` or `.parquet`; `-` writes CSV to standard output. Users are in the order of the
            files. Each user has up to `top` rows, the best first: user, rank from 1, item and score.
        top: Number of items for each user.
        data_format: Format of the rows; None: the format is guessed.
        index: Search method: all items are scored, or only the items that a vector index finds.
        max_unknown: Largest share of the users or items that may be unknown; None for any.

    Raises:
        ShunterError: The model does not exist, does not rank, does not match its signature, or has no index. The same
            error is raised if the rows cannot be read or the file cannot be written.
    """
    check_out(out)
    if top < 1:
        raise RequestError(f"--top {top} requests no items: use at least 1.")
    with open_model(named) as model:
        scorer = model.scorer()
        if not isinstance(scorer, RankingScorer):
            raise RequestError(
                f"--top {top} needs a ranking model, but {model.title} predicts click probabilities: leave "
                "out --top, or train a ranking model, such as --model ease."
            )
        if taken := {"rank", "score"} & {scorer.user, scorer.item}:
            raise RequestError(
                f"The input column {taken.pop()} has the name of a result column of --top: rename it in the log."
            )
        columns, encoding = (scorer.user, scorer.item), scorer.encoder.text_form.encoding
        seen = Seen.of(scorer, read_rows(data, columns, (), BLOCK_ROWS, data_format, encoding=encoding))
        seen.counts.check(max_unknown)
        users = seen.users
        with writer(out) as write:
            best = BestItems(scorer, model.title, seen, choice=index, lengths=(top,), expected_users=users.height)
            for some in best.of(users, top):
                write(some)
        return Ranked(model.title, users.height, seen.counts, best.search_sentence)
