"""The command `shunter plan`, which places embedding tables, and commands that use its plans."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shunter.errors import RequestError
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.flows.command.flow_commands import AS_JSON
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.flows.command.start import start
from shunter.flows.command.terminal import (
    console,
    one_sentence_errors,
    print_json,
    print_line,
    print_run,
    report_undelivered,
)
from shunter.masked_console import is_verbose

if TYPE_CHECKING:
    from shunter.extensions.distributed.planning.report import PlanReport

MOST_TABLES = 8  # without `--verbose`
MOST_TASKS = 12


def print_plan(report: "PlanReport") -> None:
    """Print the tables' placements and the step times of this and other plans; with `--verbose` the critical path."""
    verbose = is_verbose()
    print_table(console, tables_of(report, len(report.tables) if verbose else MOST_TABLES))
    console.print()
    step = report.step_seconds
    plans = [
        ("this plan", _milliseconds(step), ""),
        *(
            (name, _milliseconds(seconds), f"{seconds / step:.2f} x")
            for name, seconds in sorted(report.rivals.items(), key=lambda one: one[1])
        ),
        *((name, "does not fit", "") for name in report.not_fitting),
        ("lower bound", _milliseconds(report.bound_seconds), ""),
    ]
    print_table(console, TextTable(("plan", "step (simulated)", "against this plan"), plans))
    console.print()
    if verbose:
        # Changes that make training faster but change the trained model, and the busy time of each device and link.
        rows = [(one.name, f"{one.speedup:.2f} x", one.quality, one.option) for one in report.proposals]
        print_table(console, TextTable(("faster", "samples/s", "what changes", "allowed by"), rows))
        busy = [
            (name, _milliseconds(seconds), f"{seconds / step:.0%}") for name, seconds in report.busy_seconds.items()
        ]
        print_table(console, TextTable(("device or link", "busy", "share of the step"), busy))
        print_table(console, TextTable((), detail_rows(report)))
    elif report.proposals:
        one = report.proposals[0]
        print_table(console, TextTable((), [("Faster still", f"{one.name} ({one.speedup:.2g} x): {one.option}")]))


def tables_of(report: "PlanReport", most: int) -> TextTable:
    """Return the placements of the largest tables, with their reasons."""
    largest = sorted(report.tables, key=lambda table: -table.rows * table.width)
    rows = [(one.name, f"{one.rows:,}", str(one.width), one.placement, one.why) for one in largest[:most]]
    left_out = f"{len(largest) - most} smaller tables: --verbose" if len(largest) > most else ""
    return TextTable(("table", "rows", "width", "goes", "why"), rows, caption=left_out)


def detail_rows(report: "PlanReport") -> list[tuple[str, str]]:
    """Return the longest tasks on the critical path of a step, and the sources of the figures."""
    longest = sorted(report.critical_path, key=lambda one: -one[1])[:MOST_TASKS]
    layers = ", ".join(f"{name} {kind.replace('_', '-')}" for name, kind in report.plan.layers.items())
    rows = [
        ("Divided layers", layers and f"{layers} (only simulated)"),
        ("Step waits for", ", ".join(f"{name} {_milliseconds(seconds)}" for name, seconds in longest)),
        ("Fullest device", number(max(report.memory_bytes) / 2**30, "GiB")),
        ("Totals", report.totals.sentence),
        ("Figures", report.told),
        ("Search", f"{report.proof or f'{report.simulations:,} plans simulated'} in {number(report.search_seconds)} s"),
    ]
    return [(title, text) for title, text in rows if text]


def _milliseconds(seconds: float) -> str:
    return number(1e3 * seconds, "ms")


OUT = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    default=Path("plan.yaml"),
    annotation=Annotated[
        Path, typer.Option("--out", help="File of the plan; a picture and a trace are written to the same folder.")
    ],
)


@with_options(PlanRequest, OUT, AS_JSON)
def plan(**options: Any) -> None:
    """Divide a model's tables over several devices."""
    context: typer.Context = options["context"]
    if context.invoked_subcommand is not None:
        return
    as_json, out = options.pop("as_json"), options.pop("out")
    with one_sentence_errors(as_json=as_json):
        request = requested(PlanRequest, options)
        _check(request)
        if out.is_dir():
            raise RequestError(f"--out {out} is a folder: name a file in it, such as {out / 'plan.yaml'}.")
        if out.suffix == ".png":
            named = out.with_suffix(".yaml")
            raise RequestError(f"--out {out} is the path of the plan's picture: name the plan {named}.")
        report = start("shunter.extensions.distributed.plan_flow:plan", request, out=str(out))
        if as_json:
            print_json(report.model_dump(mode="json"))
        else:
            print_plan(report)
            print_line(f"Plan, picture and trace: {out}, {out.with_suffix('.png')}, {out.with_suffix('.trace.json')}.")
            print_run(report.run_id)
            if report.told.startswith("Rates were measured"):
                width = report.plan.divided_width
                fixed = "" if width is None else f" --set embedding_dim={width}"
                print_line(f"Train by it with `shunter train --plan {out}{fixed}`.")
        report_undelivered()


def _check(request: PlanRequest) -> None:
    """Raise for an unknown model, accelerator or machine file, before the flow starts."""
    from shunter.models.names import check_model

    check_model(request.architecture.model)
    if request.place.machine is not None:
        from shunter.extensions.distributed.planning.machine import read_machine

        read_machine(Path(request.place.machine), ())
    elif request.place.accelerator is not None:
        from shunter.hardware.catalogue.rows import load_catalogue

        load_catalogue().find_accelerator(request.place.accelerator)
    if request.max_device_gib is not None and request.max_device_gib * 2**30 < 1:
        raise RequestError(f"--max-device-gib {request.max_device_gib:g} is less than one byte: raise it.")


def diff(
    first: Annotated[Path, typer.Argument(help="A plan.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Compare two plans line by line."""
    with one_sentence_errors():
        from shunter.extensions.distributed.planning.plan import differences, read_plan

        rows = list(differences(read_plan(first), read_plan(second)))
        print_table(console, TextTable(("", str(first), str(second)), rows))
        if not rows:
            print_line("The plans are equal.")
