"""Figure and Chrome trace of the simulated step of a plan: a line for each device and link, a bar for each task."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.extensions.distributed.planning.report import PlanReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 130
COLOURS = {
    "ids": "#d97b1f",
    "lookup": "#2563a8",
    "vectors": "#c9a26b",
    "forward": "#3d8b50",
    "backward": "#7fb38a",
    "gradients": "#b5403a",
    "update": "#6fb1e0",
    "reduce": "#7b4fa3",
    "optimizer": "#b8c4d0",
}
MOST_LINES = 40  # largest number of devices and links in the figure


def draw_plan(report: PlanReport, path: Path) -> Path:
    """Draw the step to a PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plan_figure(report).savefig(path, dpi=DPI)
    return path


def plan_figure(report: PlanReport) -> "Figure":
    """Draw the tasks as bars over milliseconds; those on the critical path have a dark edge."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    lines = list(dict.fromkeys(event.resource for event in report.events))[:MOST_LINES]
    figure = Figure(figsize=(11, 1.6 + 0.32 * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    shown: dict[str, None] = {}
    for event in report.events:
        if event.resource not in lines:
            continue
        phase = event.phase.removesuffix(" across")
        shown[phase] = None
        axes.barh(
            lines.index(event.resource),
            1e3 * event.seconds,
            left=1e3 * event.start_seconds,
            color=COLOURS.get(phase, "#999999"),
            edgecolor="black" if event.is_critical else "white",
            linewidth=0.9 if event.is_critical else 0.2,
        )
    axes.set_yticks(range(len(lines)), lines)
    axes.invert_yaxis()
    axes.set_xlabel("\n".join(["milliseconds (simulated)", *_proposals_line(report)]))
    axes.set_title(
        f"{report.plan.model} on {report.plan.data}: one step of {report.plan.batch_size:,} samples, "
        f"{1e3 * report.step_seconds:.3g} ms; dark edges: the critical path"
    )
    entries = [Patch(color=COLOURS.get(one, "#999999"), label=one) for one in shown]
    figure.legend(handles=entries, loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _proposals_line(report: PlanReport) -> list[str]:
    """Return a line on changes that would train more samples a second but alter what the model learns."""
    told = ", ".join(f"{one.name} {one.speedup:.2f} x" for one in report.proposals)
    return [f"samples per second with options that change the model: {told}"] if told else []


MICROSECONDS = 1e6


def chrome_trace(report: PlanReport) -> str:
    """Return the trace: a line for each device and link, a complete event for each task, in microseconds."""
    resources = list(dict.fromkeys(event.resource for event in report.events))
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": name}}
        for number, name in enumerate(resources)
    ]
    events = [
        {
            "name": event.name,
            "cat": event.phase,
            "ph": "X",
            "pid": 0,
            "tid": resources.index(event.resource),
            "ts": event.start_seconds * MICROSECONDS,
            "dur": event.seconds * MICROSECONDS,
            "args": {"on the critical path": event.is_critical},
        }
        for event in report.events
    ]
    title = {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "simulated step"}}
    return json.dumps({"traceEvents": [title, *names, *events], "displayTimeUnit": "ms"})
