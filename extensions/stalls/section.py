"""Section of the report page with the stalls that `shunter profile --data` measured."""

from typing import Any

from shunter.extensions.stalls.report import StallReport
from shunter.extensions.stalls.stall_figure import BARS, COLOURS, Bar
from shunter.extensions.stalls.useful_share import LANES, USEFUL_COLUMNS
from shunter.tracking.tree import RunTree

STALLS = "config/stalls.json"  # artifact of a profile

PARTS = tuple(COLOURS)


def stall_section(tree: RunTree) -> dict[str, Any]:
    """Return the bars and the table rows for the stall report of a profile."""
    report = StallReport.model_validate_json(tree.artifacts[STALLS])
    longest = max(time.high for time in report.runs.values())
    bars = [_bar(report, bar, longest) for bar in BARS if bar[1] in report.runs]
    shown = {part["name"] for bar in bars for part in bar["parts"]}
    return {
        "words": f"{report.model} on {report.data_name}: {report.devices} x {report.accelerator}, {report.threads} "
        f"thread(s) and {report.batch_size} samples each, {report.precision}. {report.communication_note}",
        "bars": bars,
        "key": [{"name": _words(name), "colour": colour} for colour, name in enumerate(PARTS) if _words(name) in shown],
        "rows": [
            {
                "name": _words(stall.name),
                "state": stall.state,
                "milliseconds": _milliseconds(stall.seconds),
                "low": _milliseconds(stall.low_seconds),
                "high": _milliseconds(stall.high_seconds),
                "reason": stall.reason,
            }
            for stall in report.stalls
        ],
        "useful": None
        if report.useful is None
        else {"columns": USEFUL_COLUMNS, "rows": report.useful.rows(), "steps": report.useful.steps, "lanes": LANES},
    }


def _bar(report: StallReport, bar: Bar, longest: float) -> dict[str, Any]:
    """Return one bar: the compute part, then the detected stalls, and the 95 % interval of the whole step."""
    title, run, base, names = bar
    seconds = {"compute": report.runs[base].seconds}
    seconds |= {stall.name: stall.seconds for stall in report.stalls if stall.name in names and stall.seconds}
    time = report.runs[run]
    return {
        "title": title.removeprefix("one device, ").replace("\n", " "),
        "parts": [
            {"name": _words(name), "colour": PARTS.index(name), "percent": 100 * value / longest}
            for name, value in seconds.items()
        ],
        "low": 100 * time.low / longest,
        "spread": 100 * (time.high - time.low) / longest,
        "text": f"{1e3 * time.seconds:.3g} ms",
    }


def _words(name: str) -> str:
    return name.replace("_", " ")


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
