"""What the short commands print."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from shunter.hardware.types import HardwareProfile, Quantity

if TYPE_CHECKING:
    from shunter.planner.decide import Decision
    from shunter.search.result import TuneResult

MOST_ACCELERATORS = 12


def profile_table(profiles: Sequence[HardwareProfile]) -> Table:
    """One column an accelerator, one row a figure with its unit and source."""
    table = Table(
        "", *(profile.accelerator.name for profile in profiles), title="Accelerators of this machine", box=box.SIMPLE
    )
    rows = [
        ("model", [profile.accelerator.model for profile in profiles]),
        ("cores", [str(profile.accelerator.cores) for profile in profiles]),
        ("memory", [f"{profile.accelerator.memory_bytes / 2**30:.1f} GiB" for profile in profiles]),
        ("instruction sets", [" ".join(profile.accelerator.instruction_sets) for profile in profiles]),
        ("matrix product fp32", [_format(p.matmul_flops_per_second.get("fp32"), 1e9, "GFLOP/s") for p in profiles]),
        ("matrix product bf16", [_format(p.matmul_flops_per_second.get("bf16"), 1e9, "GFLOP/s") for p in profiles]),
        ("copy", [_format(profile.copy_bytes_per_second, 1e9, "GB/s") for profile in profiles]),
        ("random gather", [_format(profile.gather_bytes_per_second, 1e9, "GB/s") for profile in profiles]),
        ("operator overhead", [_format(profile.operator_overhead_seconds, 1e-6, "µs") for profile in profiles]),
        ("power idle", [_format(profile.idle_watts, 1, "W") for profile in profiles]),
        ("power busy", [_format(profile.busy_watts, 1, "W") for profile in profiles]),
        ("energy", [profile.energy_method for profile in profiles]),
        ("measured at", [profile.measured_at for profile in profiles]),
    ]
    for title, cells in rows:
        table.add_row(title, *cells)
    return table


def decision_table(decision: "Decision", *, every_row: bool) -> Table:
    """The candidates in order, each with time, energy and cost of the whole job and why it lost.

    Args:
        decision: Decision to show.
        every_row: Whether to show every placement; else the best of each accelerator, of the `MOST_ACCELERATORS` first.
    """
    from shunter.planner.explain.cells import format_cells, how_sure

    intervals = how_sure(decision.chosen.time_level).strip()
    title = f"Placements by {decision.objective}, intervals {intervals}, for {decision.job.epochs:.3g} epochs"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    quantities = [*format_cells(decision.chosen)]
    for title in ("placement", "outcome", "why", *quantities, "memory"):
        table.add_column(title, overflow="fold")
    shown: dict[str, None] = {}
    for ranked, row in zip(decision.table, decision.shown_rows(), strict=True):
        accelerator = ranked.candidate.placement.accelerator
        if not every_row and (accelerator in shown or len(shown) >= MOST_ACCELERATORS):
            continue
        shown[accelerator] = None
        where = "" if ranked.candidate.is_here else " (not here)"
        cells = [format_cells(ranked).get(quantity, "unknown") for quantity in quantities]
        table.add_row(*map(escape, (row["placement"] + where, row["outcome"], row["why"], *cells, row["memory"])))
    left_out = len({ranked.candidate.placement.accelerator for ranked in decision.table}) - len(shown)
    if left_out:
        table.caption = f"and {left_out} more accelerators: --every-row or --json shows them"
    return table


def front_table(result: "TuneResult") -> Table:
    """What a search found to choose from: trials that no other one beats in both quality and cost."""
    from shunter.engine.metrics import FIGURES
    from shunter.search.front import front_rows

    best = result.best.trial_number
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), title=f"Front of {len(result.settings)} trials, * ranks first")
    for row in front_rows(result):
        if not table.columns:
            for title in row:
                table.add_column(title, justify="right" if title not in ("family", "settings") else "left")
        trial = f"* {row['trial']}" if row["trial"] == best else str(row["trial"])
        quality = FIGURES[result.select_by]
        shown = {**row, "trial": trial, quality: f"{row[quality]:.4f}"}
        table.add_row(*("" if value is None else escape(str(value)) for value in shown.values()))
    return table


def _format(figure: Quantity | None, unit_value: float, unit: str) -> str:
    return "unknown" if figure is None else f"{figure.value / unit_value:,.1f} {unit} ({figure.source})"
