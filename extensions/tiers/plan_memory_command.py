"""The command `shunter plan memory`: how many servers of each kind have enough memory for the tables of a model."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shunter.extensions.tiers.plan_memory_request import PlanMemoryRequest
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, say
from shunter.masked_console import is_verbose

if TYPE_CHECKING:
    from shunter.extensions.tiers.memory.compare import Comparison

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, errors too.")]


@with_options(PlanMemoryRequest)
def memory(as_json: AsJson = False, **options: Any) -> None:
    """Compare servers with different kinds of memory."""
    with one_sentence_errors(as_json=as_json):
        request = requested(PlanMemoryRequest, options)
        from shunter.extensions.tiers.memory.compare import compare
        from shunter.ingestion.request import ingest_request
        from shunter.requests import TrainRequest

        source = request.source
        job = TrainRequest(
            data=source.data,
            format=source.format,
            schema_file=source.schema_file,
            where=source.where,
            max_bad_share=source.max_bad_share,
        )
        dataset, _ = ingest_request(job)
        found = compare(dataset, request)
        if as_json:
            print_json(found.to_dict())
            return
        size = number(sum(table.total_bytes for table in found.ask.tables) / 1e9, "GB")
        say(
            f"{len(found.ask.tables)} tables of {size} with the optimiser's state, at "
            f"{request.samples_per_second:,.0f} samples/s. All figures are simulated."
        )
        for table in (plans_table, around_table, serving_table) if is_verbose() else (plans_table,):
            print_table(console, table(found))


def plans_table(found: "Comparison") -> TextTable:
    """Return a table of server types: number of nodes, and time, energy and cost of a billion samples."""
    rows = []
    for name, plan in found.plans.items():
        if plan is None:
            rows.append((name, "-", *[""] * 8))
            continue
        places = list(plan.places.values())
        counts = ", ".join(f"{places.count(tier)} on {tier}" for tier in dict.fromkeys(places))
        figures = map(number, (plan.samples_per_second, plan.hours, plan.kwh, plan.cost))
        free = number(plan.cache_bytes / 1e9, "GB")
        rows.append((name, str(plan.nodes), f"{plan.miss_rate:.1%}", plan.limited_by, *figures, counts, free))
    columns = ("server", "nodes", "misses", "limited by", "samples/s", "hours", "kWh", "USD", "tables", "free")
    return TextTable(columns, rows, "For a billion samples")


def around_table(found: "Comparison") -> TextTable:
    """Return a table of the number of nodes by sample rate and by assumed over predicted cache misses."""
    rows = [
        (
            f"{one.samples_per_second:,.0f}",
            f"x {one.miss_factor:g}",
            *(
                "-" if nodes is None else f"{nodes:,}" + (f" ({rate:.0%})" if (rate := one.miss_rates[name]) else "")
                for name, nodes in one.nodes.items()
            ),
        )
        for one in found.around
    ]
    names = (name.replace("_", " ") for name in found.plans)
    return TextTable(("samples/s", "misses", *names), rows, "Nodes by rate, and by misses over those predicted")


def serving_table(found: "Comparison") -> TextTable:
    """Return a table of the hosts of each kind that serve the requested number of samples per second."""
    from shunter.extensions.tiers.memory.power import BASE, saving

    rows = [
        (
            name,
            f"{fleet.hosts:,}",
            fleet.limited_by,
            f"{fleet.miss_rate:.1%}",
            number(fleet.watts / 1e3),
            "" if name == BASE else f"{saving(found.serving, name):.0%}",
        )
        for name, fleet in found.serving.items()
    ]
    columns = ("host", "hosts", "limited by", "misses", "kW", f"energy saved over {BASE}")
    return TextTable(columns, rows, "To serve as many samples a second, by assumed hosts")
