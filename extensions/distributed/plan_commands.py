"""The command `shunter plan`, which places embedding tables, and commands that use its plans."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from shunter.errors import RequestError
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.flows.command.flow_commands import AS_JSON
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.rendering import TextTable, print_table
from shunter.flows.command.start import start
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line, report_undelivered

OUT = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    default=Path("plan.yaml"),
    annotation=Annotated[Path, typer.Option("--out", help="File of the plan, with picture and trace beside it.")],
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
        _check_out(out)
        report = start("shunter.extensions.distributed.plan_flow:plan", request, out=str(out))
        if as_json:
            print_json(report.model_dump(mode="json"))
        else:
            from shunter.extensions.distributed.plan_tables import print_plan

            print_plan(console, report)
            print_line(f"Plan, picture and trace: {out}, {out.with_suffix('.png')}, {out.with_suffix('.trace.json')}.")
            if report.told.startswith("Rates were measured"):
                width = report.plan.divided_width
                fixed = "" if width is None else f" --set embedding_dim={width}"
                print_line(f"Train by it with `shunter train --plan {out}{fixed}`.")
        report_undelivered()


def _check(request: PlanRequest) -> None:
    """Raise for an unknown model, accelerator or file, before any server starts."""
    from shunter.models.names import check_model

    check_model(request.architecture.model)
    if request.place.machine is not None:
        from shunter.extensions.distributed.planning.machine import read_machine

        read_machine(Path(request.place.machine), ())
    elif request.place.accelerator is not None:
        from shunter.hardware.catalogue.rows import load_catalogue

        load_catalogue().find_accelerator(request.place.accelerator)
    if request.max_device_gib is not None and request.max_device_gib * 2**30 < 1:
        raise RequestError(f"--max-device-gib {request.max_device_gib:g} is less than a byte: raise it.")


def _check_out(out: Path) -> None:
    """Raise if the plan cannot be written to the file, or if its picture would overwrite the file."""
    if out.is_dir():
        raise RequestError(f"--out {out} is a folder: name a file in it, such as {out / 'plan.yaml'}.")
    if out.suffix == ".png":
        raise RequestError(f"--out {out} is where the plan's picture goes: name the plan {out.with_suffix('.yaml')}.")


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
