"""The commands that show, use and hand out registered models."""

from pathlib import Path
from typing import Annotated

import typer

from flows.command.terminal import one_sentence_errors, print_line, say
from shunter.requests import DataFormat

MODEL = "Registered model: its name for the champion, NAME@ALIAS or NAME/VERSION; or the folder of an exported one."


def predict(
    model: Annotated[str, typer.Argument(help=MODEL)],
    file: Annotated[Path, typer.Argument(help="Rows to score: a CSV or Parquet file, or a log in Criteo's layout.")],
    out: Annotated[
        str, typer.Option(help="File for the scores, .csv or .parquet, with a row for each; - is standard output.")
    ] = "-",
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
