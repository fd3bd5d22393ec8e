"""The command `shunter check`, which examines a log before a training run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shunter.errors import RequestError
from shunter.flows.command.terminal import one_sentence_errors, print_json, print_line, say

if TYPE_CHECKING:
    from shunter.ingestion.check import Checked


def check(  # noqa: PLR0917 - options of a command
    data: Annotated[str, typer.Argument(help="Click log: file, folder, glob, list or address.")],
    schema: Annotated[str | None, typer.Option(help="Schema file or address; inferred if omitted.")] = None,
    data_format: Annotated[str | None, typer.Option("--format", help="Format of the log; guessed if omitted.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Predicate of the rows to read, such as 'day >= 5'; all rows if omitted.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="File or address to write the inferred schema to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, errors too.")] = False,
) -> None:
    """Check a click log and infer its schema; train nothing."""
    with one_sentence_errors(as_json=as_json):
        from shunter.ingestion.check import check as look_at
        from shunter.ingestion.sources.addresses import parse_address, without_file_scheme

        if out is not None and parse_address(out) is None and Path(without_file_scheme(out)).exists():
            raise RequestError(f"--out {out} exists: name a new file, or remove it first.")
        checked = look_at(data, data_format, schema, where)
        if out is not None and checked.schema is not None:
            _write(out, checked.schema)
        if as_json:
            print_json(checked.to_dict())
        else:
            _print(checked, data, out)


def _write(out: str, text: str) -> None:
    from shunter.ingestion.sources.addresses import output_path

    try:
        with output_path(out, "--out") as path:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"--out {out} cannot be written ({error.strerror}): name another file.") from error


def _print(checked: "Checked", data: str, out: str | None) -> None:
    """Print the schema on standard output, so that `>` can save it, and all other findings on standard error."""
    looked_at = f"looked at {checked.rows:,} rows, {checked.positive_share:.1%} of them positive"
    say(f"{checked.name} ({checked.data_format}): {looked_at}.")
    if checked.bad_rows:
        say(f"{checked.bad_rows:,} more rows cannot be read, such as {checked.first_fault}.")
    for finding in checked.findings:
        say(f"- {finding.words}")
    if not checked.findings:
        say("No findings.")
    if checked.schema is None:
        if out is not None:
            say(f"Nothing was written to {out}: the log has its schema.")
        return
    if out is None:
        print_line(checked.schema.rstrip("\n"))
    file = out or "schema.yaml"
    kept = "Written" if out else "Save it with `> schema.yaml`, check it"
    say(f"{kept}, then: shunter train --data {data} --schema {file}")
