"""The best items for each user of a file: what a model that ranks is for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shunter.errors import RequestError
from shunter.flows.command.predict import BLOCK_ROWS, Scored, check_out, writer
from shunter.ingestion.rows import read_rows
from shunter.requests import DataFormat, IndexChoice
from shunter.tracking.registry.best_items import BestItems, Seen
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.ranking_serving import RankingScorer


@dataclass(frozen=True)
class Ranked(Scored):
    """What was done.

    Attributes:
        how: How the best items were found, in a sentence.
    """

    how: str


def best_items_of_file(
    named: str,
    data: str | Path | Sequence[str],
    out: str,
    top: int,
    *,
    data_format: DataFormat | None = None,
    index: IndexChoice = IndexChoice.AUTO,
    max_unknown: float | None = None,
) -> Ranked:
    """Rank the items of files for each of its users, without those that stand beside the user there.

    Args:
        named: The model, as `shunter.tracking.registry.named.open_model` takes it.
        data: Rows of users and items, such as the log that the model was trained on, as
            `shunter.ingestion.rows.read_rows` takes them.
        out: As of `shunter.flows.command.predict.predict_file`. Each user, in the order of the file, has `top` rows or
            as many
            as there are items left, the best first: the user, the rank from 1, the item and its score.
        top: Items for each user.
        data_format: Format of the rows; None to guess it.
        index: Whether all scores are compared, or those that an index of the item vectors finds.
        max_unknown: Largest share of the users or items that may be unknown; None for any.

    Raises:
        ShunterError: There is no such model, it does not rank, it is not what was signed, the rows cannot be read, or
            the file cannot be written; or an index is wanted and cannot be had.
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
        columns, encoding = (scorer.user, scorer.item), scorer.encoder.text_form.encoding
        seen = Seen.of(scorer, read_rows(data, columns, (), BLOCK_ROWS, data_format, encoding=encoding))
        seen.counts.check(max_unknown)
        users = seen.users
        with writer(out) as write:
            best = BestItems(scorer, model.title, seen, choice=index, lengths=(top,), expected_users=users.height)
            for some in best.of(users, top):
                write(some)
        return Ranked(model.title, users.height, seen.counts, best.told)
