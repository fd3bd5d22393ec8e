"""Command that measures the quality of a registered model under memory faults."""

from typing import Any

from shunter.extensions.compression.robustness.robustness_request import RobustnessRequest
from shunter.flows.command.environment import ensure_home
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.rendering import TextTable, print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_line


@with_options(RobustnessRequest)
def robustness(**options: Any) -> None:
    """Measure quality under simulated memory bit flips."""
    with one_sentence_errors():
        request = requested(RobustnessRequest, options)
        ensure_home()
        from shunter.extensions.compression.robustness.robustness_card import COLUMNS, rows_of
        from shunter.extensions.compression.robustness.robustness_flow import robustness as robustness_flow

        # Call the bare function, without Prefect's server, which would only display the run.
        card = robustness_flow.fn(request)
        print_table(console, TextTable(COLUMNS, list(rows_of(card))))
        print_line(card.sentence)
