"""Section of a report about the use of time."""

from collections.abc import Mapping
from typing import Any

from shunter.reporting.page.figures import name_of
from shunter.reporting.page.format import duration, energy
from shunter.tracking.history import TrackedRun
from shunter.tracking.tree import RunTree

STEPS = (
    *("start", "ingest", "profile", "track", "select", "baselines", "tune", "train", "ensemble", "card", "register"),
    *("report", "other"),
)
CHECKPOINT_COUNTS = ("written", "full", "skipped", "restores", "bits")


def time_section(tree: RunTree) -> dict[str, Any] | None:
    """Return the bars of steps and training runs, and the lines of checkpoints and of embedding tables in files."""
    steps, waits = step_bars(tree.parent), wait_bars(tree)
    if not steps and not waits:
        return None
    return {"steps": steps, "waits": waits, "checkpoints": checkpoint_lines(tree), "tiers": tier_lines(tree)}


def step_bars(run: TrackedRun) -> list[dict[str, Any]]:
    """Return a bar for the time of each step of the flow, in order."""
    names = {
        name.removeprefix("time.").removesuffix("_step_seconds"): seconds
        for name, seconds in run.metrics.items()
        if name.endswith("_step_seconds")
    }
    most = max(names.values(), default=0.0) or 1.0
    return [
        {"name": name, "percent": 100 * names[name] / most, "text": duration(names[name])}
        for name in sorted(names, key=lambda name: STEPS.index(name) if name in STEPS else len(STEPS))
    ]


def wait_bars(tree: RunTree) -> list[dict[str, Any]]:
    """Return a bar for each member with the share of time that it waited for batches."""
    lines = []
    for run in tree.of_kind("member"):
        share = run.metrics.get("stall.wait_share")
        if share is not None:
            text = f"{100 * share:.2g} % waiting"
            lines.append({"name": name_of(run), "compute": 100 * (1 - share), "wait": 100 * share, "text": text})
    return lines


def tier_lines(tree: RunTree) -> list[dict[str, Any]]:
    """Return measured and predicted traffic between memory and the file of each member's embedding tables."""
    expected = tree.parent.metrics.get("prediction.tier_miss_rate")
    return [
        {
            "name": name_of(run),
            "rows": f"{run.metrics['tiers.rows']:,.0f}",
            "missed": _miss_text(run.metrics),
            "expected": "" if expected is None else f"{expected:.1%}",
            "read": f"{run.metrics['tiers.bytes_read'] / 2**20:,.1f}",
            "written": f"{run.metrics['tiers.bytes_written'] / 2**20:,.1f}",
            "seconds": duration(run.metrics["tiers.transfer_seconds"]),
        }
        for run in tree.of_kind("member")
        if run.metrics.get("tiers.rows")
    ]


def _miss_text(metrics: Mapping[str, float]) -> str:
    """Return the share of table rows read from the file, on average and of the process with the highest share."""
    share, highest = f"{metrics['tiers.miss_rate']:.1%}", metrics.get("tiers.highest_miss_rate")
    if highest is None:
        return share
    return f"{share}, {highest:.1%} in one of {metrics['tiers.processes']:.0f} processes"


def checkpoint_lines(tree: RunTree) -> list[dict[str, Any]]:
    """Return the checkpoint statistics of each ensemble member, as texts for a table.

    Members without a checkpoint in this run, such as members that an earlier attempt finished, are omitted.
    """
    return [
        {
            "name": name_of(run),
            **{name: f"{run.metrics[f'checkpoint.{name}']:.0f}" for name in CHECKPOINT_COUNTS},
            "increments": f"{run.metrics['checkpoint.written'] - run.metrics['checkpoint.full']:.0f}",
            "mebibytes": f"{run.metrics['checkpoint.bytes_written'] / 2**20:,.1f}",
            "kept": f"{run.metrics['checkpoint.bytes_kept'] / 2**20:,.1f}",
            "stall": duration(run.metrics["checkpoint.stall_seconds"]),
            "copies": (f"{copied:.0f}" if copied or failed else "") + (f", {failed:.0f} failed" if failed else ""),
            "energy": energy(joules / 3.6e6) if (joules := run.metrics.get("checkpoint.joules")) is not None else "",
        }
        for run in tree.of_kind("member")
        for copied, failed in [[run.metrics.get(f"checkpoint.{name}", 0) for name in ("copied", "copies_failed")]]
        if run.metrics.get("checkpoint.written")
    ]
