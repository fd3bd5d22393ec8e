"""Commands that show, use and export registered models."""

from pathlib import Path
from typing import Annotated

import typer

from shunter.errors import RequestError
from shunter.flows.command.terminal import one_sentence_errors, print_line, say
from shunter.python_processes import loading
from shunter.requests import CheckpointBits, IndexChoice

MODEL = "Registered model (NAME, NAME@ALIAS or NAME/VERSION), or the folder of an exported one."
INCREMENT = "Folder or address of `shunter export --since` to apply to the model first; repeatable, in order."


def predict(
    model: Annotated[str, typer.Argument(help=MODEL)],
    files: Annotated[
        list[str],
        typer.Argument(help="Rows to score (CSV, Parquet or Criteo): files, folders, globs or comma-separated lists."),
    ],
    *,
    out: Annotated[
        str, typer.Option(help="File for the scores, .csv or .parquet, one row per input row; - is standard output.")
    ] = "-",
    top: Annotated[
        int | None,
        typer.Option(help="For ranking models: number of best new items to write per user."),
    ] = None,
    index: Annotated[
        IndexChoice,
        typer.Option(help="With --top: exact scores, an approximate index, or auto (approximate where it is faster)."),
    ] = IndexChoice.AUTO,
    keep: Annotated[
        str | None, typer.Option(help="Columns of the input files to copy before the scores, separated by commas.")
    ] = None,
    data_format: Annotated[
        str | None, typer.Option("--format", help="Format of the files; guessed if omitted.")
    ] = None,
    increment: Annotated[list[str] | None, typer.Option(help=INCREMENT)] = None,
    max_unknown: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Maximum share of unknown or unreadable values per column; no limit if omitted."
        ),
    ] = None,
) -> None:
    """Score rows of files with a registered model."""
    with one_sentence_errors():
        with loading("polars"):
            from shunter.flows.command.predict import predict_file
        from shunter.ingestion.sources.addresses import local_folders

        data = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        if top is not None:
            from shunter.flows.command.top import best_items_of_file

            if keep:
                raise RequestError("--keep has no effect with --top, which writes its own columns: leave it out.")
            if increment:
                raise RequestError("--increment has no effect with --top: ranking models are exported whole.")
            ranked = best_items_of_file(
                model, files, out, top, data_format=data_format, index=index, max_unknown=max_unknown
            )
            if notice := ranked.counts.notice():
                say(notice)
            say(ranked.how)
            where = "." if out == "-" else f": {out}"
            say(f"The best items for {ranked.rows:,} users of {data}, ranked by {ranked.model}{where}")
            return
        if index is not IndexChoice.AUTO:
            raise RequestError(f"--index {index.value} has no effect without --top: add --top to rank items.")
        kept = [name.strip() for name in keep.split(",")] if keep else []
        with local_folders(increment or ()) as increments:
            scored = predict_file(
                model,
                files,
                out,
                keep=kept,
                data_format=data_format,
                increments=increments,
                max_unknown=max_unknown,
            )
        if notice := scored.counts.notice():
            say(notice)
        say(f"{scored.rows:,} rows of {data} scored by {scored.model}" + ("." if out == "-" else f": {out}"))


def export(
    model: Annotated[str, typer.Argument(help=MODEL)],
    folder: Annotated[str, typer.Argument(help="Folder to create, or an address of an object store.")],
    *,
    export_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format: shunter; or, to use without Shunter: torch, aoti, onnx, or vectors (ranking models).",
        ),
    ] = "shunter",
    since: Annotated[
        str | None,
        typer.Option(help="Write only the changes since this base model: version number, name or exported folder."),
    ] = None,
    increment: Annotated[list[str] | None, typer.Option(help=INCREMENT)] = None,
    bits: Annotated[
        CheckpointBits,
        typer.Option(
            help="Bits per weight in changed rows: 32 is exact; auto: 8 for tables of at least 1 GiB, else 32."
        ),
    ] = CheckpointBits.FULL,
    rows: Annotated[
        Path | None,
        typer.Option(help="Rows on which to compare the scores of the new model and of base model plus increment."),
    ] = None,
) -> None:
    """Copy a registered model, or its changes, into a folder."""
    with one_sentence_errors():
        from shunter.ingestion.sources.addresses import local_folders, output_path

        if since is None and (bits is not CheckpointBits.FULL or rows is not None):
            raise RequestError("--bits and --rows are for increments: name the base model with --since.")
        if since is not None and export_format != "shunter":
            raise RequestError(f"--format {export_format} has no effect with --since: leave one of them out.")
        with output_path(folder, "FOLDER") as made, local_folders(increment or ()) as increments:
            if since is None:
                from shunter.tracking.registry.named import EXPORT_FORMATS, OWN_FORMAT

                done = EXPORT_FORMATS.load(export_format)(model, made, increments)
                is_own = export_format == OWN_FORMAT
                use = f"mlflow.pyfunc.load_model({str(folder)!r}).predict(frame)" if is_own else "python score.py ROWS"
                lines = [
                    f"{done.title} is in {folder} ({done.size:,} bytes): {use}",
                    f"Fingerprint: {done.fingerprint}",
                ]
            else:
                from shunter.engine.checkpoint.checkpoint_settings import stored_bits
                from shunter.flows.command.predict import compare_scores, increment_summary
                from shunter.tracking.registry.named import export_increment

                exported = export_increment(model, made, since, increments, stored_bits(bits.value))
                lines = increment_summary(exported, folder)
                if rows is not None:
                    lines.append(compare_scores(model, exported.earlier, [*increments, made], rows))
        for line in lines:
            print_line(line)
