"""The command `shunter fleet learn`."""

import inspect
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from shunter.errors import RequestError
from shunter.extensions.fleet.learning_requests import FleetLearnRequest
from shunter.flows.command.flow_commands import AS_JSON
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.flows.command.start import start
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line, print_run

OUT = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None, typer.Option("--out", help="Additional file for the learned policy, such as mine.safetensors.")
    ],
)


@with_options(FleetLearnRequest, OUT, AS_JSON)
def learn(**options: Any) -> None:
    """Train a scheduling policy in the simulator."""
    as_json, out = options.pop("as_json"), options.pop("out")
    with one_sentence_errors(as_json=as_json):
        request = requested(FleetLearnRequest, options)
        _check(request)
        summary = start("shunter.extensions.fleet.learning_flow:fleet_learn", request)
        if out is not None:
            try:
                shutil.copyfile(summary.file, out)
            except OSError as error:
                raise RequestError(
                    f"The learned policy cannot be written to {out} ({error.strerror}): name another file."
                ) from error
        file = str(out or summary.file)
        if as_json:
            print_json({
                "policy": file, "told": summary.told, "figures": summary.figures, "run_id": summary.run_id
            })  # fmt: skip
            return
        print_table(console, _table(summary.objective, summary.figures))
        print_line(f"The policy was {summary.told}. It was written to {file}")
        print_run(summary.run_id)


def _check(request: FleetLearnRequest) -> None:
    """Raise for invalid requests before any server starts."""
    from shunter.extensions.fleet.learning.request import check_learning

    check_learning(request)


def _table(objective: str, figures: dict[str, float]) -> TextTable:
    rows = [(name, number(value)) for name, value in sorted(figures.items(), key=lambda one: one[1])]
    return TextTable(("policy", objective), rows, "Learned and others (simulated)")
