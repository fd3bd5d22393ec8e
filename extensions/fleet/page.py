"""Self-contained HTML page that compares schedules: a table of metrics, and a figure of each schedule."""

from collections.abc import Mapping, Sequence
from html import escape

from shunter.extensions.fleet.drawing import (
    gantt,
    power_steps,
    queue_steps,
    steps_chart,
    useful_steps,
    utilisation_steps,
)
from shunter.extensions.fleet.duration_model import PredictedTime, Source
from shunter.extensions.fleet.schedule import HOUR, Schedule

COLUMNS = (  # metric, title, divisor, digits
    ("makespan_seconds", "makespan (h)", HOUR, 2),
    ("jct.mean_seconds", "mean completion (h)", HOUR, 2),
    ("jct.p99_seconds", "99th percentile (h)", HOUR, 2),
    ("queueing.mean_seconds", "mean waiting (h)", HOUR, 2),
    ("communication.overhead", "communication (%)", 0.01, 1),
    ("utilisation", "held (%)", 0.01, 1),
    ("utilisation.useful", "useful (%)", 0.01, 1),
    ("energy_joules", "energy (kWh)", 3.6e6, 2),
    ("cost", "cost", 1.0, 2),
    ("fairness.rho", "unfairness", 1.0, 2),
    ("preemptions", "preemptions", 1.0, 0),
    ("migrations", "moves", 1.0, 0),
)
STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:84rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}.soft{color:#666}svg{width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:#444}
svg text.on{font-size:9px;fill:#fff}figure{margin:1rem 0}.scroll{overflow-x:auto}.best{font-weight:600}"""


def fleet_page(
    schedules: Sequence[Schedule],
    figures: Sequence[Mapping[str, float]],
    title: str,
    source: str = "simulated",
    times: Sequence[PredictedTime] = (),
) -> str:
    """Return the HTML page that compares the schedules.

    Args:
        schedules: Schedule of each policy.
        figures: Metrics of each schedule.
        title: Description of the jobs and the cluster.
        source: Source of the metrics: simulated or measured.
        times: Predicted time of each job by accelerator type; shown if any time was not stated by the user.
    """
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)} - Shunter fleet</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">All figures are {source}, power and price apart. Communication is the share of running time '
        "that tighter placements would have saved; unfairness is the mean completion time over that on a fair share of "
        "the cluster, 1 is fair. Energy rests on the watts of the cluster's file, or on the design power of the "
        "catalogue, and cost likewise on prices: unknown where neither names them.</p>",
        table_html(schedules, figures),
        times_html(times),
    ]
    for schedule in schedules:
        parts += [
            f'<h2 id="{escape(schedule.policy)}">{escape(schedule.policy)}</h2>',
            gantt(schedule),
            steps_chart("jobs that wait", queue_steps(schedule), schedule),
            steps_chart(
                "share of accelerators in use; darker: the share that tight placements would need",
                utilisation_steps(schedule),
                schedule,
                useful_steps(schedule),
            ),
        ]
        if schedule.cluster.has_watts:
            parts.append(steps_chart("power (W)", power_steps(schedule), schedule))
    return "\n".join([*parts, "</body></html>\n"])


def table_html(schedules: Sequence[Schedule], figures: Sequence[Mapping[str, float]]) -> str:
    """Return the metrics of all schedules side by side as an HTML table."""
    rows = ["<tr><th>policy</th>" + "".join(f"<th>{escape(title)}</th>" for _, title, *_ in COLUMNS) + "</tr>"]
    for schedule, values in zip(schedules, figures, strict=True):
        cells = "".join(f"<td>{cell(values, key, by, digits)}</td>" for key, _, by, digits in COLUMNS)
        rows.append(f'<tr><td><a href="#{escape(schedule.policy)}">{escape(schedule.policy)}</a></td>{cells}</tr>')
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>'


def times_html(times: Sequence[PredictedTime]) -> str:
    """Return the predicted times of the jobs with their sources; empty if all times were stated."""
    if all(one.source is Source.STATED and not one.server_memory_gib for one in times):
        return ""
    cells = "".join(
        f"<tr><td>{escape(one.job)}</td><td>{escape(one.accelerator)}</td><td>{one.seconds:,.2f}</td>"
        f"<td>{one.source.value}</td><td>{f'{one.server_memory_gib:.2f}' if one.server_memory_gib else ''}</td></tr>"
        for one in times
    )
    head = "<tr><th>job</th><th>accelerator</th><th>predicted (s)</th><th>by</th>"
    head += "<th>server memory of a process, predicted or stated (GiB)</th></tr>"
    return f'<details class="scroll"><summary>Times of each job</summary><table>{head}{cells}</table></details>'


def markdown_table(schedules: Sequence[Schedule], figures: Sequence[Mapping[str, float]]) -> str:
    """Return the metrics of the policies as a Markdown table."""
    lines = ["| policy | " + " | ".join(title for _, title, *_ in COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    for schedule, values in zip(schedules, figures, strict=True):
        lines.append(f"| {schedule.policy} | " + " | ".join(cell(values, k, by, d) for k, _, by, d in COLUMNS) + " |")
    return "\n".join(lines)


def cell(values: Mapping[str, float], key: str, divisor: float, digits: int) -> str:
    """Format one metric."""
    return "unknown" if key not in values else f"{values[key] / divisor:,.{digits}f}"
