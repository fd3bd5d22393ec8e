"""The commands that show, use and hand out registered models."""

from pathlib import Path
from typing import Annotated

import typer

from flows.command.terminal import one_sentence_errors, print_line, say
from shunter.errors import RequestError
from shunter.requests import DataFormat

MODEL = "Registered model: its name for the champion, NAME@ALIAS or NAME/VERSION; or the folder of an exported one."


def predict(
    model: Annotated[str, typer.Argument(help=MODEL)],
    file: Annotated[Path, typer.Argument(help="Rows to score: a CSV or Parquet file, or a log in Criteo's layout.")],
    *,
    out: Annotated[
        str, typer.Option(help="File for the scores, .csv or .parquet, with a row for each; - is standard output.")
    ] = "-",
    top: Annotated[
        int | None,
        typer.Option(
            help="Of a model that ranks: instead of scores, the best items for each user of the file, among all items "
            "of the file but those that stand beside the user there."
        ),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Columns of the file to put before the scores, separated by commas.")
    ] = None,
    data_format: Annotated[
        DataFormat | None, typer.Option("--format", help="Format of the file; guessed from its name if omitted.")
    ] = None,
) -> None:
    """Score the rows of a file with a registered model, block by block, in their order."""
    with one_sentence_errors():
        from flows.command.predict import predict_file

        if top is not None:
            from flows.command.top import best_items_of_file

            if keep:
                raise RequestError("--keep has no effect with --top, which has columns of its own: leave it out.")
            ranked = best_items_of_file(model, file, out, top, data_format=data_format)
            where = "." if out == "-" else f": {out}"
            say(f"The best items for {ranked.rows:,} users of {file}, ranked by {ranked.model}{where}")
            return
        kept = [name.strip() for name in keep.split(",")] if keep else []
        scored = predict_file(model, file, out, keep=kept, data_format=data_format)
        say(f"{scored.rows:,} rows of {file} scored by {scored.model}" + ("." if out == "-" else f": {out}"))


def export(
    model: Annotated[str, typer.Argument(help=MODEL)],
    folder: Annotated[Path, typer.Argument(help="Folder to make.")],
) -> None:
    """Copy a registered model into a folder of safetensors and JSON, which one line of Python loads anywhere."""
    with one_sentence_errors():
        from tracking.registry.named import export_model

        title = export_model(model, folder)
        print_line(f"{title} is in {folder}: mlflow.pyfunc.load_model({str(folder)!r}).predict(frame)")
