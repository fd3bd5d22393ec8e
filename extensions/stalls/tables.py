"""Tables and sentences about stalls that `shunter profile --data` prints."""

from rich import box
from rich.table import Table

from shunter.extensions.stalls.report import StallReport
from shunter.extensions.stalls.sparse_accelerator import LANES
from shunter.extensions.stalls.useful_share import USEFUL_COLUMNS, UsefulShare

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


def _short(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
