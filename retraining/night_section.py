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
