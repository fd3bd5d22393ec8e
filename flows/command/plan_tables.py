"""What `shunter plan` prints."""

from rich import box
from rich.markup import escape
from rich.table import Table

from shunter.masked_console import Console
from shunter.planner.parallel.report import PlanReport

MOST_TABLES = 40
MOST_TASKS = 12


def print_plan(console: Console, report: PlanReport) -> None:
    """Where each table went and why, what the step takes beside other plans, and what it waits for."""
    tables = Table("table", "rows", "width", "goes", "why", box=box.SIMPLE)
    for one in sorted(report.tables, key=lambda table: -table.rows * table.width)[:MOST_TABLES]:
        tables.add_row(escape(one.name), f"{one.rows:,}", str(one.width), one.placement, one.why)
    console.print(tables)
    if len(report.tables) > MOST_TABLES:
        console.print(f"{len(report.tables) - MOST_TABLES} smaller tables are in the file.", highlight=False)
    if report.plan.layers:
        divided = ", ".join(f"{name} {kind.replace('_', '-')}" for name, kind in report.plan.layers.items())
        console.print(f"Divided layers (only simulated): {divided}.", highlight=False, markup=False)
    rivals = Table("plan", "step (simulated)", "against this plan", box=box.SIMPLE)
    rivals.add_row("this plan", _milliseconds(report.step_seconds), "")
    for name, seconds in sorted(report.rivals.items(), key=lambda one: one[1]):
        rivals.add_row(name, _milliseconds(seconds), f"{seconds / report.step_seconds:.2f} x")
    for name in report.not_fitting:
        rivals.add_row(name, "does not fit", "")
    rivals.add_row("no plan can be below", _milliseconds(report.bound_seconds), "")
    console.print(rivals)
    if report.proposals:
        more = Table("what else would be faster", "samples a second", "and changes", "allowed by", box=box.SIMPLE)
        for one in report.proposals:
            more.add_row(one.name, f"{one.speedup:.2f} x", one.quality, one.option)
        console.print(more)
    busy = Table("device or link", "busy", "share of the step", box=box.SIMPLE)
    for name, seconds in report.busy_seconds.items():
        busy.add_row(escape(name), _milliseconds(seconds), f"{seconds / report.step_seconds:.0%}")
    console.print(busy)
    longest = sorted(report.critical_path, key=lambda one: -one[1])[:MOST_TASKS]
    path = ", ".join(f"{name} {_milliseconds(seconds)}" for name, seconds in longest)
    memory = max(report.memory_bytes) / 2**30
    how = report.proof or f"{report.simulations:,} plans were simulated"
    for sentence in (
        f"The step waits, longest first, for: {path}.",
        f"The fullest device holds {memory:.3g} GiB of the model.",
        report.totals.told,
        f"{report.told} All step times are simulated; {how} in {report.search_seconds:.1f} s.",
    ):
        console.print(sentence, highlight=False, markup=False)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.3g} ms"
