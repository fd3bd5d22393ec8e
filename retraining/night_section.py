"""Section of a report on a night: champion against challenger, the findings of the day, and the outcome."""

from typing import Any

from shunter.retraining.nights import Night
from shunter.tracking.tree import RunTree

NIGHT = "config/night.json"


def night(tree: RunTree) -> dict[str, Any]:
    """Return outcome, findings, and the figures of both models on the judged day."""
    found = Night.model_validate_json(tree.artifacts[NIGHT])
    judgement = found.judgement
    return {
        "day": found.day,
        "outcome": found.outcome,
        "reason": found.reason,
        "champion": found.champion,
        "findings": [{"kind": one.kind, "words": one.words} for one in found.findings],
        "sides": [] if judgement is None else judgement.sides(),
    }


def sides_table(night: Night) -> str:
    """Return the figures of both models on the judged day as a table in Markdown; empty if none were compared."""
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
