"""Section of a report on the placement of the tables of a training run in several processes."""

import json
from typing import Any

from shunter.reporting.page.figures import name_of
from shunter.tracking.tree import RunTree

MOST_TABLES = 60
TRAINED_PLAN = "plan.json"  # details of the plan that the training jobs of a run follow


def plan_section(tree: RunTree) -> dict[str, Any]:
    """Return the card section on the plan: tables, other plans, and predicted and measured step times."""
    plan = json.loads(tree.artifacts[TRAINED_PLAN])
    tables = sorted(plan["tables"], key=lambda one: -one["rows"] * one["width"])
    steps = [
        {
            "name": name_of(run),
            "predicted": 1e3 * predicted,
            "measured": 1e3 * measured,
            "fetched": run.metrics.get("row_traffic.rows_per_lookup"),
        }
        for run in tree.of_kind("member")
        if (predicted := run.metrics.get("plan.predicted_step_seconds"))
        and (measured := run.metrics.get("plan.measured_step_seconds"))
    ]
    return {
        "devices": plan["devices"],
        "is_given": plan["is_given"],
        "told": plan["told"],
        "step": 1e3 * plan["step_seconds"],
        "rivals": [
            {"name": name, "step": 1e3 * seconds, "ratio": seconds / plan["step_seconds"]}
            for name, seconds in sorted(plan["rivals"].items(), key=lambda one: one[1])
        ],
        "tables": tables[:MOST_TABLES],
        "left_out": max(0, len(tables) - MOST_TABLES),
        "steps": steps,
        "fetches": any(one["fetched"] is not None for one in steps),
    }
