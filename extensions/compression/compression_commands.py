"""Commands that compress a registered model, and that measure one under memory faults."""

from typing import Any

from shunter.extensions.compression.compression_requests import CompressRequest, RobustnessRequest
from shunter.flows.command.environment import ensure_home
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.rendering import TextTable, print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_line


@with_options(CompressRequest)
def compress(**options: Any) -> None:
    """Make a registered model smaller and faster."""
    with one_sentence_errors():
        request = requested(CompressRequest, options)
        ensure_home()
        from shunter.extensions.compression.compress_flow import compress as compress_flow
        from shunter.extensions.compression.compression_card import COLUMNS, comparison

        # Call the bare function, without Prefect's server, which would only display the run.
        found, made = compress_flow.fn(request)
        print_table(console, TextTable(COLUMNS, list(comparison(found.card.records))))
        print_line(found.card.sentence)
        if made is not None:
            alias = "champion" if made.not_promoted is None else "challenger"
            print_line(f"It is {made.name}/{made.version}, the {alias}: `shunter serve --model {made.name}@{alias}`.")


@with_options(RobustnessRequest)
def robustness(**options: Any) -> None:
    """Measure quality under simulated memory bit flips."""
    with one_sentence_errors():
        request = requested(RobustnessRequest, options)
        ensure_home()
        from shunter.extensions.compression.robustness.robustness_flow import COLUMNS, rows_of
        from shunter.extensions.compression.robustness.robustness_flow import robustness as robustness_flow

        # Call the bare function, without Prefect's server, which would only display the run.
        card = robustness_flow.fn(request)
        print_table(console, TextTable(COLUMNS, list(rows_of(card))))
        print_line(card.sentence)
