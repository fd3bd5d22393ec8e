"""What `shunter profile` prints."""

from collections.abc import Sequence
from itertools import zip_longest

from rich import box
from rich.table import Table

from shunter.engine.profiling.useful_share import USEFUL_COLUMNS, UsefulShare
from shunter.engine.stalls.report import StallReport
from shunter.flows.command.tables import profile_table
from shunter.flows.profiling import ProfileSummary
from shunter.hardware.cost.sparse_accelerator import LANES
from shunter.hardware.types import CollectiveCost, HardwareProfile, Quantity
from shunter.masked_console import Console

RUN_TITLES = {
    "S1": "one device, batches made beforehand",
    "S0": "one process with all threads",
    "S1g": "all devices, each for itself",
    "S6": "all devices, tables copied",
    "S2": "all devices",
    "S4": "all devices, read from memory",
    "S3": "all devices, read from disk",
    "S5": "between machines (simulated)",
    "S7": "one device, tables in slower memory",
    "L4": "reader alone, from memory",
    "L3": "reader alone, from disk",
}


def machine_tables(profiles: Sequence[HardwareProfile]) -> list[Table]:
    """Everything that was measured of the machine."""
    return [profile_table(profiles), *(curve_table(profile) for profile in profiles), surroundings_table(profiles)]


def curve_table(profile: HardwareProfile) -> Table:
    """Matrix products by size, embedding rows by width; medians, all measured."""
    title = f"{profile.accelerator.name}: GFLOP/s by size of the product, million rows/s by width of the row, measured"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1))
    for heading in ("m x k x n", "fp32", "bf16", "row", "lookup", "update"):
        table.add_column(heading, no_wrap=True, justify="right")
    singles, halves = (profile.matmul_curve.get(precision, ()) for precision in ("fp32", "bf16"))
    products = [
        (
            f"{fp32.m} x {fp32.k} x {fp32.n}",
            _short(fp32.flops_per_second.value / 1e9),
            _short(bf16.flops_per_second.value / 1e9) if bf16 else "emulated",
        )
        for fp32, bf16 in zip_longest(singles, halves)
    ]
    rows = [
        (f"{read.row_bytes} B", *(_short(rate.bytes_per_second.value / read.row_bytes / 1e6) for rate in (read, write)))
        for read, write in zip(profile.gather_curve, profile.scatter_curve, strict=True)
    ]
    for product, row in zip_longest(products, rows, fillvalue=("", "", "")):
        table.add_row(*product, *row)
    return table


def surroundings_table(profiles: Sequence[HardwareProfile]) -> Table:
    """Disk, copies to a device, and collectives."""
    table = Table("", "", title="Around the accelerators, measured", box=box.SIMPLE, show_header=False)
    disk = profiles[0].disk
    if disk is not None:
        table.add_row("disk, in sequence", _rate(disk.sequential_bytes_per_second, 1e9, "GB/s"))
        table.add_row("disk, 4 KiB at random", _rate(disk.random_reads_per_second, 1e3, "thousand reads/s"))
    copies = [(profile.accelerator.name, profile.host_to_device_bytes_per_second) for profile in profiles]
    for name, copied in copies:
        if copied is not None:
            table.add_row(f"host to {name}", _rate(copied, 1e9, "GB/s"))
    if all(copied is None for _, copied in copies):
        table.add_row("host to device", "not measurable: there is no device but the processor")
    for profile in profiles:
        for cost in (*profile.collectives, *(profile.shared_vectors or ())):
            table.add_row(f"{cost.operation.replace('_', '-')} x {cost.processes}, {cost.link}", _line(cost))
    return table


def stall_table(report: StallReport) -> Table:
    """Each stall with its interval, its share and its slow-down, or that there is none to be seen."""
    table = Table(
        title=f"Stalls of {report.model} on {report.data_name}, measured where not said otherwise",
        caption="share: of the slower run's step; times: slower run over faster; whole: hidden time included",
        box=box.SIMPLE,
        padding=(0, 1),
    )
    for heading in ("stall", "ms a step", "95 %", "share", "times", "whole"):
        table.add_column(heading, no_wrap=True)
    for stall in report.stalls:
        name = stall.name.replace("_", " ")
        whole = "" if stall.total_seconds is None else _short(1e3 * stall.total_seconds)
        interval = ""
        if stall.low_seconds is not None and stall.high_seconds is not None:
            interval = f"{_short(1e3 * stall.low_seconds)} to {_short(1e3 * stall.high_seconds)}"
        if stall.seconds is None:
            table.add_row(name, stall.state, interval, "", "", whole)
            continue
        found = _short(1e3 * stall.seconds) + (" simulated" if stall.state == "simulated" else "")
        table.add_row(name, found, interval, f"{stall.share_of_slow_run:.0%}", f"{stall.slow_down:.2f}", whole)
    return table


def useful_table(useful: UsefulShare) -> Table:
    """Which multiplications of a step count, by layer, and what an accelerator that skips the others would gain."""
    table = Table(
        title=f"Multiplications of {useful.model} that count, after {useful.steps} steps, measured",
        caption=f"speed-up: simulated, of the backward pass on {LANES} lanes that skip zeros",
        box=box.SIMPLE,
        padding=(0, 1),
    )
    for heading in USEFUL_COLUMNS:
        table.add_column(heading, no_wrap=True, justify="left" if heading == "layer" else "right")
    for row in useful.rows():
        table.add_row(*row)
    return table


def stall_notes(report: StallReport) -> list[str]:
    """Why stalls are not measurable, and what else belongs below the table."""
    reasons = {stall.reason: None for stall in report.stalls if stall.state == "not measurable"}
    notes = [f"Not measurable: {reason}." for reason in reasons]
    if report.sharding:
        divided = ", ".join(f"{count} {name}" for name, count in sorted(report.sharding.items()))
        notes.append(f"Tables over {report.devices} processes: {divided}.")
    return [*notes, f"Communication model: {report.communication_note.rstrip('.')}."]


def run_table(report: StallReport) -> Table:
    """The measured runs that the stalls are differences of."""
    table = Table("run", "", "ms", "95 %", "rounds", title="Measured runs, each step or batch", box=box.SIMPLE)
    for name, title in RUN_TITLES.items():
        if name in report.runs:
            time = report.runs[name]
            interval = f"{_short(1e3 * time.low)} to {_short(1e3 * time.high)}"
            table.add_row(name, title, _short(1e3 * time.seconds), interval, str(time.rounds))
    return table


def _rate(figure: Quantity, unit_value: float, unit: str) -> str:
    spread = ""
    if figure.low is not None and figure.high is not None:
        spread = f" ({figure.low / unit_value:,.1f} to {figure.high / unit_value:,.1f})"
    return f"{figure.value / unit_value:,.1f}{spread} {unit}"


def _short(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _line(cost: CollectiveCost) -> str:
    return (
        f"{1e6 * cost.latency_seconds:,.0f} µs + bytes / {cost.bytes_per_second / 1e9:,.2f} GB/s (fitted, "
        f"R² {cost.r2:.2f})"
    )


def print_profile(console: Console, summary: ProfileSummary) -> None:
    """Print everything: the machine, the stalls, the advice, and where the pictures are."""
    for table in machine_tables(summary.profiles):
        console.print(table)
    if summary.report is not None:
        console.print(run_table(summary.report))
        console.print(stall_table(summary.report))
        if summary.report.useful is not None:
            console.print(useful_table(summary.report.useful))
        for note in stall_notes(summary.report):
            console.print(note, highlight=False, markup=False)
        for sentence in summary.advice or ("Nothing was found to wait for.",):
            console.print(f"- {sentence}", highlight=False, markup=False)
    for picture in summary.pictures:
        console.print(f"Picture: {picture}", highlight=False, markup=False, soft_wrap=True)
