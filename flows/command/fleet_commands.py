"""The commands of a fleet: `shunter fleet simulate`."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.command.flow_commands import AS_JSON
from flows.command.options import requested, with_options
from flows.command.start import start
from flows.command.terminal import console, one_sentence_errors, print_json, print_line
from shunter.errors import RequestError
from shunter.requests import FleetRequest

PAGE = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    default=Path("shunter-fleet.html"),
    annotation=Annotated[Path, typer.Option("--out", help="File of the page with the schedules' pictures.")],
)

# What fits into a terminal; the page has all.
IN_TERMINAL = (
    "makespan_seconds",
    "jct.mean_seconds",
    "queueing.mean_seconds",
    "communication.overhead",
    "energy_joules",
)


@with_options(FleetRequest, PAGE, AS_JSON)
def simulate(**options: Any) -> None:
    """Say what each policy would do with a queue of trainings on a cluster: waiting, makespan, energy, cost."""
    as_json, out = options.pop("as_json"), options.pop("out")
    with one_sentence_errors(as_json=as_json):
        request = requested(FleetRequest, options)
        _check(request)
        summary = start("flows.fleet:fleet", request)
        try:
            out.write_text(summary.page, encoding="utf-8")
        except OSError as error:
            raise RequestError(f"The page cannot be written to {out} ({error.strerror}): name another.") from error
        if as_json:
            print_json({"policies": summary.figures, "run_id": summary.run_id, "page": str(out)})
            return
        console.print(_table(summary.figures))
        print_line(f"All figures are simulated. The schedules as pictures: {out}")


def _check(request: FleetRequest) -> None:
    """Refuse what cannot work before any server starts."""
    from scheduler.files import read_fleet
    from scheduler.policies import policy_names

    policy_names(request.policies)
    read_fleet(request)


def _table(figures: dict[str, dict[str, float]]) -> Any:
    from rich.table import Table

    from reporting.fleet.page import COLUMNS, cell

    shown = [column for column in COLUMNS if column[0] in IN_TERMINAL]

    table = Table(title="Simulated schedules")
    table.add_column("policy", no_wrap=True)
    for _, title, *_ in shown:
        table.add_column(title, justify="right")
    for name, values in figures.items():
        table.add_row(name, *(cell(values, key, by, digits) for key, _, by, digits in shown))
    return table
