"""A simulated step as a Chrome trace: a JSON file for chrome://tracing and Perfetto."""

import json

from shunter.extensions.distributed.planning.report import PlanReport

MICROSECONDS = 1e6


def chrome_trace(report: PlanReport) -> str:
    """The trace: a line for each device and link, a complete event for each task, in microseconds."""
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
