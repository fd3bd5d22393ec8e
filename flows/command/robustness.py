"""The command that measures what errors of the memory do to a registered model."""

from typing import Any

from shunter.flows.command.environment import ensure_home
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.terminal import console, one_sentence_errors, print_line
from shunter.requests.robustness import RobustnessRequest


@with_options(RobustnessRequest)
def robustness(**options: Any) -> None:
    """Measure quality under simulated memory bit flips."""
    with one_sentence_errors():
        request = requested(RobustnessRequest, options)
        ensure_home()
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        from shunter.flows.robustness import robustness as robustness_flow
        from shunter.reporting.robustness import COLUMNS, rows_of

        # The bare function: nothing of it waits for a server that only watches.
        card = robustness_flow.fn(request)
        table = Table(*COLUMNS, box=box.SIMPLE)
        for row in rows_of(card):
            table.add_row(*map(escape, row))
        console.print(table)
        print_line(card.sentence)
