"""Tables and sentences about stalls that `shunter profile --data` prints."""

from shunter.extensions.stalls.report import StallReport
from shunter.extensions.stalls.sparse_accelerator import LANES
from shunter.extensions.stalls.useful_share import USEFUL_COLUMNS, UsefulShare
from shunter.flows.command.rendering import TextTable, number

RUN_TITLES = {
    "S1": "one device, batches made beforehand",
    "S0": "one process with all threads",
    "S1g": "all devices, without communication",
    "S6": "all devices, tables copied",
    "S2": "all devices",
    "S4": "all devices, read from memory",
    "S3": "all devices, read from disk",
    "S5": "between machines (simulated)",
    "S7": "one device, tables in slower memory",
    "L4": "reader alone, from memory",
    "L3": "reader alone, from disk",
}


def stall_table(report: StallReport) -> TextTable:
    """Return a table of the stalls with interval, share and slow-down, or the note that a stall cannot be measured."""
    rows = []
    for stall in report.stalls:
        found = [stall.state, "", ""]
        if stall.seconds is not None:
            mark = "~" if stall.state == "simulated" else ""
            found = [
                f"{mark}{number(1e3 * stall.seconds)}",
                f"{stall.share_of_slow_run:.0%}",
                f"{stall.slow_down:.2f}",
            ]
        interval = ""
        if stall.low_seconds is not None and stall.high_seconds is not None:
            interval = f"{number(1e3 * stall.low_seconds)} to {number(1e3 * stall.high_seconds)}"
        whole = "" if stall.total_seconds is None else number(1e3 * stall.total_seconds)
        rows.append((stall.name.replace("_", " "), found[0], interval, *found[1:], whole))
    return TextTable(
        ("stall", "ms a step", "95 %", "share", "times", "whole"),
        rows,
        f"Stalls of {report.model} on {report.data_name}",
        "share: of the slower run's step; times: slower / faster run; whole: including hidden time; ~ simulated",
    )


def useful_table(useful: UsefulShare) -> TextTable:
    """Return the share of useful multiplications by layer, and the speed-up of an accelerator that skips all others."""
    title = f"Multiplications of {useful.model} that count, after {useful.steps} steps"
    caption = f"x: simulated speed-up of the backward pass on {LANES} lanes that skip zeros"
    return TextTable(USEFUL_COLUMNS, useful.rows(), title, caption)


def stall_notes(report: StallReport) -> list[str]:
    """Return the notes below the table, such as why a stall cannot be measured."""
    reasons = {stall.reason: None for stall in report.stalls if stall.state == "not measurable"}
    notes = [f"Not measurable: {reason}." for reason in reasons]
    if report.sharding:
        divided = ", ".join(f"{count} {name}" for name, count in sorted(report.sharding.items()))
        notes.append(f"Tables over {report.devices} processes: {divided}.")
    return [*notes, f"Communication model: {report.communication_note.rstrip('.')}."]


def run_table(report: StallReport) -> TextTable:
    """Return the measured runs whose differences are the stalls."""
    rows = [
        (
            name,
            title,
            number(1e3 * time.seconds),
            f"{number(1e3 * time.low)} to {number(1e3 * time.high)}",
            str(time.rounds),
        )
        for name, title in RUN_TITLES.items()
        if (time := report.runs.get(name)) is not None
    ]
    return TextTable(("run", "", "ms", "95 %", "rounds"), rows, "Measured runs, each step or batch")
