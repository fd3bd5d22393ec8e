"""Tables of the output of `shunter profile`."""

from collections.abc import Sequence
from itertools import zip_longest

from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.flows.profiling import ProfileSummary
from shunter.hardware.types import HardwareProfile, Quantity
from shunter.masked_console import Console, is_verbose


def profile_table(profiles: Sequence[HardwareProfile]) -> TextTable:
    """Return a table with a column for each accelerator and a row for each measured figure."""
    rows = [
        ("model", *(one.accelerator.model for one in profiles)),
        ("cores", *(str(one.accelerator.cores) for one in profiles)),
        ("memory", *(number(one.accelerator.memory_bytes / 2**30, "GiB") for one in profiles)),
        ("matrix product fp32", *(_rate(one.matmul_flops_per_second.get("fp32"), 1e9, "GFLOP/s") for one in profiles)),
        ("matrix product bf16", *(_rate(one.matmul_flops_per_second.get("bf16"), 1e9, "GFLOP/s") for one in profiles)),
        ("copy", *(_rate(one.copy_bytes_per_second, 1e9, "GB/s") for one in profiles)),
        ("random gather", *(_rate(one.gather_bytes_per_second, 1e9, "GB/s") for one in profiles)),
        ("operator overhead", *(_rate(one.operator_overhead_seconds, 1e-6, "µs") for one in profiles)),
        ("power idle", *(_rate(one.idle_watts, 1, "W") for one in profiles)),
        ("power busy", *(_rate(one.busy_watts, 1, "W") for one in profiles)),
        ("energy", *(one.energy_method.partition(":")[0] for one in profiles)),
        ("measured at", *(one.measured_at for one in profiles)),
    ]
    names = [one.accelerator.name for one in profiles]
    return TextTable(("", *names), rows, "Accelerators of this machine", "~ estimated")


def curve_table(profile: HardwareProfile) -> TextTable:
    """Return a table of measured speeds: matrix products by size, embedding lookups and updates by row width."""
    singles, halves = (profile.matmul_curve.get(precision, ()) for precision in ("fp32", "bf16"))
    products = [
        (
            f"{fp32.m} x {fp32.k} x {fp32.n}",
            number(fp32.flops_per_second.value / 1e9),
            number(bf16.flops_per_second.value / 1e9) if bf16 else "emulated",
        )
        for fp32, bf16 in zip_longest(singles, halves)
    ]
    rows = [
        (f"{read.row_bytes} B", *(number(rate.bytes_per_second.value / read.row_bytes / 1e6) for rate in (read, write)))
        for read, write in zip(profile.gather_curve, profile.scatter_curve, strict=True)
    ]
    cells = [(*product, *row) for product, row in zip_longest(products, rows, fillvalue=("", "", ""))]
    title = f"{profile.accelerator.name}: GFLOP/s by size of the product, million rows/s by width of the row"
    return TextTable(("m x k x n", "fp32", "bf16", "row", "lookup", "update"), cells, title)


def surroundings_table(profiles: Sequence[HardwareProfile]) -> TextTable:
    """Return a table of measured rates of the disk, of copies from host to GPU, and of collective operations."""
    rows: list[tuple[str, str]] = []
    if (disk := profiles[0].disk) is not None:
        rows.append(("disk, in sequence", _rate(disk.sequential_bytes_per_second, 1e9, "GB/s")))
        rows.append(("disk, 4 KiB at random", _rate(disk.random_reads_per_second, 1e3, "thousand reads/s")))
    for one in profiles:
        if one.host_to_device_bytes_per_second is not None:
            rows.append((f"host to {one.accelerator.name}", _rate(one.host_to_device_bytes_per_second, 1e9, "GB/s")))
    rows += [
        (
            f"{cost.operation.replace('_', '-')} x {cost.processes}, {cost.link}",
            f"{number(1e6 * cost.latency_seconds)} µs + bytes / {number(cost.bytes_per_second / 1e9)} GB/s (fitted)",
        )
        for one in profiles
        for cost in (*one.collectives, *(one.shared_vectors or ()))
    ]
    return TextTable((), rows, "Around the accelerators")


def _rate(figure: Quantity | None, unit_value: float, unit: str) -> str:
    if figure is None:
        return "unknown"
    text = number(figure.value / unit_value, unit)
    return text if figure.source == "measured" else f"~{text}"


def print_profile(console: Console, summary: ProfileSummary) -> None:
    """Print the figures of the machine (all with `--verbose`), the analysis of a run, and paths of pictures."""
    profiles = summary.profiles
    details = [*map(curve_table, profiles), surroundings_table(profiles)] if is_verbose() else []
    for table in (profile_table(profiles), *details):
        print_table(console, table)
    for part in summary.analysis.printed() if summary.analysis else ():
        if isinstance(part, TextTable):
            print_table(console, part)
        else:
            console.print(part, highlight=False, markup=False)
    for picture in summary.pictures:
        console.print(f"Picture: {picture}", highlight=False, markup=False, soft_wrap=True)
