"""Section of a report about a nightly run: champion and challenger, findings about the day, and outcome."""

from typing import Any

from shunter.retraining.nightly_runs import NightlyResult
from shunter.tracking.tree import RunTree

NIGHT = "config/night.json"


def night(tree: RunTree) -> dict[str, Any]:
    """Return outcome, findings, and metrics of both models on the evaluation day."""
    found = NightlyResult.model_validate_json(tree.artifacts[NIGHT])
    comparison = found.judgement
    return {
        "day": found.day,
        "outcome": found.outcome,
        "reason": found.reason,
        "champion": found.champion,
        "findings": [{"kind": one.kind, "words": one.words} for one in found.findings],
        "sides": [] if comparison is None else comparison.sides(),
    }


def sides_table(night: NightlyResult) -> str:
    """Return the metrics of both models on the evaluation day as a Markdown table; empty without a comparison."""
    sides = [] if night.judgement is None else night.judgement.sides()
    if not sides:
        return ""
    titles = list(sides[0])
    lines = [
        [f"{one[title]:.4f}" if isinstance(one[title], float) else str(one[title]) for title in titles] for one in sides
    ]
    return "\n".join(
        f"| {' | '.join(row)} |"
        for row in ([t.replace("name", "model") for t in titles], ["---"] * len(titles), *lines)
    )
