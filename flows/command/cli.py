"""The command `shunter`. It starts fast: Prefect, MLflow and torch are imported only by commands that need them."""

import os
from typing import Annotated

import typer

from shunter.flows.command.command_registry import PROGRAM, Commands
from shunter.flows.command.environment import prepare_environment
from shunter.flows.command.terminal import print_quarantines

app = typer.Typer(
    name=PROGRAM,
    help="Train recommenders within time, energy, cost and quality limits.",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def show_version(is_requested: bool) -> None:
    """Print the version and exit."""
    if is_requested:
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
