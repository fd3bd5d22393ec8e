"""What `shunter profile` prints."""

from collections.abc import Sequence
from itertools import zip_longest

from rich import box
from rich.table import Table

from shunter.flows.command.tables import profile_table
from shunter.flows.profiling import ProfileSummary
from shunter.hardware.types import CollectiveCost, HardwareProfile, Quantity
from shunter.masked_console import Console


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
    """Print the figures of the machine, the analysis of a training, and the paths of the pictures."""
    for table in machine_tables(summary.profiles):
        console.print(table)
    for part in summary.analysis.printed() if summary.analysis else ():
        if isinstance(part, str):
            console.print(part, highlight=False, markup=False)
        else:
            console.print(part)
    for picture in summary.pictures:
        console.print(f"Picture: {picture}", highlight=False, markup=False, soft_wrap=True)
