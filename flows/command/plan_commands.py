"""The commands of a plan: `shunter plan`, which finds where tables go, and what is done with plans."""

from pathlib import Path
from typing import Annotated

import typer

from flows.command.terminal import console, one_sentence_errors, print_line


def diff(
    first: Annotated[Path, typer.Argument(help="A plan.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Compare two plans: what is placed elsewhere, line by line."""
    with one_sentence_errors():
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        from planner.parallel.plan import differences, read_plan

        plans = read_plan(first), read_plan(second)
        table = Table("", str(first), str(second), box=box.SIMPLE)
        for row in differences(*plans):
            table.add_row(*map(escape, row))
        if not table.row_count:
            print_line("The plans are equal.")
            return
        console.print(table)
