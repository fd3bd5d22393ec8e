"""The command `shunter`. It starts light: Prefect, MLflow and torch are imported by the command that needs them."""

import os
from typing import Annotated

import typer

from shunter.flows.command.check import check
from shunter.flows.command.compression import compress
from shunter.flows.command.doctor import doctor
from shunter.flows.command.environment import prepare_environment
from shunter.flows.command.fleet_commands import run, simulate
from shunter.flows.command.fleet_learning import learn
from shunter.flows.command.flow_commands import nightly, profile, rollback, select, train, tune
from shunter.flows.command.model_commands import export, predict
from shunter.flows.command.output_options import with_accepted_models, with_output_options
from shunter.flows.command.plan_commands import diff
from shunter.flows.command.plan_commands import plan as find_plan
from shunter.flows.command.plan_memory import memory
from shunter.flows.command.plan_scale import scale
from shunter.flows.command.robustness import robustness
from shunter.flows.command.run_commands import clean, datasets, models, report, runs, sync
from shunter.flows.command.service_commands import down, status, ui, up
from shunter.flows.command.serving import serve
from shunter.flows.command.terminal import print_quarantines
from shunter.flows.command.usage import Commands

app = typer.Typer(
    name="shunter",
    help="Puts every recommendation-model training on its right accelerator.",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        from importlib.metadata import version

        typer.echo(f"shunter {version('shunter')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and the servers' logs.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Prepare the process before any command runs."""
    if debug:
        os.environ["SHUNTER_DEBUG"] = "1"
    print_quarantines()
    prepare_environment(debug=debug)


for command in (
    check,
    train,
    tune,
    select,
    profile,
    *map(with_accepted_models, (nightly, rollback, predict, export, compress, robustness, serve)),
    models,
    datasets,
    runs,
    report,
    sync,
    clean,
    doctor,
    up,
    down,
    status,
    ui,
):
    app.command()(with_output_options(command))
fleet = typer.Typer(
    name="fleet", help="Many trainings on one cluster.", cls=Commands, no_args_is_help=True, rich_markup_mode=None
)
for command in (simulate, run, learn):
    fleet.command()(with_output_options(command))
fleet.callback()(lambda: None)
app.add_typer(fleet)
plan = typer.Typer(name="plan", cls=Commands, invoke_without_command=True, rich_markup_mode=None)
plan.callback()(with_output_options(find_plan))
for command in (diff, memory, scale):
    plan.command()(with_output_options(command))
app.add_typer(plan)
