"""The stalls in Prefect's UI."""

from collections.abc import Iterable

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from shunter.engine.stalls.report import StallReport
from shunter.markdown import plain


def publish(report: StallReport, advice: Iterable[str]) -> None:
    """Show the table of the stalls and the advice as artifacts of the running task."""
    rows = [
        {
            "stall": stall.name.replace("_", " "),
            "state": f"{stall.state}: {stall.reason}" if stall.reason else stall.state,
            "ms a step": _milliseconds(stall.seconds),
            "from": _milliseconds(stall.low_seconds),
            "to": _milliseconds(stall.high_seconds),
            "share of the step": "" if stall.share_of_slow_run is None else f"{stall.share_of_slow_run:.1%}",
        }
        for stall in report.stalls
    ]
    job = f"{plain(report.model)} on {plain(report.data_name)}"
    create_table_artifact(table=rows, key="stalls", description=f"Stalls of {job}, interval of 95 %")
    sentences = "\n".join(f"- {plain(sentence)}" for sentence in advice) or "Nothing was found to wait for."
    create_markdown_artifact(f"# {job}\n\n{sentences}\n", key="stall-advice")


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3f}"
