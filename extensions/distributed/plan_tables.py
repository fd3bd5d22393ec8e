"""Output of `shunter plan`, as plain data."""

from shunter.extensions.distributed.planning.report import PlanReport
from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.masked_console import Console
from shunter.quiet import is_verbose

MOST_TABLES = 8  # without `--verbose`
MOST_TASKS = 12


def print_plan(console: Console, report: PlanReport) -> None:
    """Print the placement of each table and the step beside other plans; with `--verbose` also the critical path."""
    verbose = is_verbose()
    print_table(console, tables_of(report, len(report.tables) if verbose else MOST_TABLES))
    console.print()
    print_table(console, rivals_of(report))
    console.print()
    if verbose:
        print_table(console, proposals_of(report))
        print_table(console, busy_of(report))
        print_table(console, TextTable((), detail_rows(report)))
    elif report.proposals:
        one = report.proposals[0]
        print_table(console, TextTable((), [("Faster still", f"{one.name} ({one.speedup:.2g} x): {one.option}")]))


def tables_of(report: PlanReport, most: int) -> TextTable:
    """Return the placements of the largest tables, with their reasons."""
    largest = sorted(report.tables, key=lambda table: -table.rows * table.width)
    rows = [(one.name, f"{one.rows:,}", str(one.width), one.placement, one.why) for one in largest[:most]]
    left_out = f"{len(largest) - most} smaller tables: --verbose" if len(largest) > most else ""
    return TextTable(("table", "rows", "width", "goes", "why"), rows, caption=left_out)


def rivals_of(report: PlanReport) -> TextTable:
    """Return the simulated step of this plan and of the others."""
    rows = [
        ("this plan", _milliseconds(report.step_seconds), ""),
        *(
            (name, _milliseconds(seconds), f"{seconds / report.step_seconds:.2f} x")
            for name, seconds in sorted(report.rivals.items(), key=lambda one: one[1])
        ),
        *((name, "does not fit", "") for name in report.not_fitting),
        ("lower bound", _milliseconds(report.bound_seconds), ""),
    ]
    return TextTable(("plan", "step (simulated)", "against this plan"), rows)


def proposals_of(report: PlanReport) -> TextTable:
    """Return changes that would be faster, but that alter what the model learns."""
    rows = [(one.name, f"{one.speedup:.2f} x", one.quality, one.option) for one in report.proposals]
    return TextTable(("faster", "samples/s", "what changes", "allowed by"), rows)


def busy_of(report: PlanReport) -> TextTable:
    """Return the busy time of each device and link in a step."""
    shares = [(name, seconds, seconds / report.step_seconds) for name, seconds in report.busy_seconds.items()]
    rows = [(name, _milliseconds(seconds), f"{share:.0%}") for name, seconds, share in shares]
    return TextTable(("device or link", "busy", "share of the step"), rows)


def detail_rows(report: PlanReport) -> list[tuple[str, str]]:
    """Return the longest tasks on the critical path of a step, and the sources of the figures."""
    longest = sorted(report.critical_path, key=lambda one: -one[1])[:MOST_TASKS]
    layers = ", ".join(f"{name} {kind.replace('_', '-')}" for name, kind in report.plan.layers.items())
    rows = [
        ("Divided layers", layers and f"{layers} (only simulated)"),
        ("Step waits for", ", ".join(f"{name} {_milliseconds(seconds)}" for name, seconds in longest)),
        ("Fullest device", number(max(report.memory_bytes) / 2**30, "GiB")),
        ("Totals", report.totals.told),
        ("Figures", report.told),
        ("Search", f"{report.proof or f'{report.simulations:,} plans simulated'} in {number(report.search_seconds)} s"),
    ]
    return [(title, text) for title, text in rows if text]


def _milliseconds(seconds: float) -> str:
    return number(1e3 * seconds, "ms")
