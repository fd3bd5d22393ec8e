"""The command `shunter doctor`: damaged files and killed runs of the home, and the action taken on each."""

from dataclasses import asdict
from typing import Annotated

import typer

from shunter.flows.command.rendering import print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line


def doctor(
    check: Annotated[bool, typer.Option("--check", help="Only report; change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")] = False,
) -> None:
    """Check files and runs of Shunter's home and repair them.

    The exit code is 1 if a problem remains.
    """
    with one_sentence_errors(as_json=as_json):
        from shunter.flows.command.daemons import stop_idle_servers
        from shunter.flows.command.listings import doctor_table
        from shunter.tasks.doctor import examine

        if not check:
            stop_idle_servers()  # an idle server has Prefect's database open
        found = examine(mends=not check)
        if as_json:
            print_json([{**asdict(one), "state": one.state} for one in found])
        else:
            print_table(console, doctor_table(found))
            if not found:
                print_line("The home is empty.")
            for one in found:
                if one.advice:
                    print_line(f"{one.path}: {one.fault}. {one.advice}")
    if not all(one.is_settled for one in found):
        raise typer.Exit(1)
