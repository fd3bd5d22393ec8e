"""The command that plans on how many servers of which kind the tables of a model have room."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shunter.flows.command.options import requested, with_options
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line, say
from shunter.requests.plan_memory import PlanMemoryRequest

if TYPE_CHECKING:
    from shunter.planner.memory.compare import Comparison

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, errors too.")]


@with_options(PlanMemoryRequest)
def memory(as_json: AsJson = False, **options: Any) -> None:
    """Compare servers with different kinds of memory."""
    with one_sentence_errors(as_json=as_json):
        request = requested(PlanMemoryRequest, options)
        from shunter.ingestion.request import ingest_request
        from shunter.planner.memory.compare import compare
        from shunter.requests import TrainRequest

        source = request.source
        job = TrainRequest(
            data=source.data, format=source.format, schema_file=source.schema_file, max_bad_share=source.max_bad_share
        )
        dataset, _ = ingest_request(job)
        found = compare(dataset, request)
        if as_json:
            print_json(found.to_dict())
        else:
            _print(found, request)


def _print(found: "Comparison", request: PlanMemoryRequest) -> None:
    from rich import box
    from rich.table import Table

    say(
        f"{len(found.ask.tables)} tables of {sum(table.total_bytes for table in found.ask.tables):,.0f} bytes with the "
        f"state of the optimiser, at {request.samples_per_second:,.0f} samples a second. Simulated: tiers, watts and "
        "prices are those of the file of servers, misses are predicted from the statistics of the data."
    )
    columns = ("server", "nodes", "misses", "limited by", "samples/s", "hours", "kWh", "USD")
    table = Table(*columns, box=box.SIMPLE, title="for a billion samples", collapse_padding=True, pad_edge=False)
    for name, plan in found.plans.items():
        if plan is None:
            table.add_row(name, "-", *[""] * 6)
            continue
        figures = (f"{plan.samples_per_second:.2g}", f"{plan.hours:.2g}", f"{plan.kwh:.2g}", f"{plan.cost:.2g}")
        table.add_row(name, str(plan.nodes), f"{plan.miss_rate:.1%}", plan.limited_by, *figures)
    console.print(table)
    for name, plan in found.plans.items():
        if plan is not None:
            tiers = dict.fromkeys(plan.places.values())
            counts = ", ".join(f"{list(plan.places.values()).count(tier)} on {tier}" for tier in tiers)
            print_line(f"{name}: {counts}; {plan.cache_bytes / 1e9:,.0f} GB of each node are left.")
    _print_around(found)
    _print_serving(found)


def _print_around(found: "Comparison") -> None:
    from rich import box
    from rich.table import Table

    table = Table("samples/s", "misses", box=box.SIMPLE, title="nodes by rate, and by misses over those predicted")
    for name in found.plans:
        table.add_column(name.replace("_", " "), justify="right")
    for one in found.around:
        cells = (_nodes_told(nodes, one.miss_rates[name]) for name, nodes in one.nodes.items())
        table.add_row(f"{one.samples_per_second:,.0f}", f"x {one.miss_factor:g}", *cells)
    console.print(table)


def _nodes_told(nodes: int | None, miss_rate: float | None) -> str:
    """Nodes, with the share of rows that the cache misses where there is one."""
    return "-" if nodes is None else f"{nodes:,}" + ("" if miss_rate is None else f" ({miss_rate:.0%})")


def _print_serving(found: "Comparison") -> None:
    from rich import box
    from rich.table import Table

    from shunter.planner.memory.power import BASE, saving

    columns = ("host", "hosts", "limited by", "misses", "kW", f"energy saved over {BASE}")
    table = Table(*columns, box=box.SIMPLE, title="to serve as many samples a second, simulated by assumed hosts")
    for name, fleet in found.serving.items():
        spared = "" if name == BASE else f"{saving(found.serving, name):.0%}"
        table.add_row(
            name, f"{fleet.hosts:,}", fleet.limited_by, f"{fleet.miss_rate:.1%}", f"{fleet.watts / 1e3:,.3g}", spared
        )
    console.print(table)
