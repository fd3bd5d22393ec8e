"""What a contest comes to: pure functions from two rows to ratios."""

from collections.abc import Mapping
from typing import Any

# The quality to reach is a rival's best on the validation part, less what is noise between two seeds.
SLACK = 0.0005


def best_quality(row: Mapping[str, Any]) -> float:
    """Best quality on the validation part."""
    return max(point["quality"] for point in row["points"])


def first_reaching(row: Mapping[str, Any], quality: float) -> Mapping[str, float] | None:
    """The first point that has a quality; None where none has."""
    return next((point for point in row["points"] if point["quality"] >= quality), None)


def verdict(rival: Mapping[str, Any], shunter: Mapping[str, Any]) -> dict[str, float | None]:
    """Ratios above 1 are in Shunter's favour.

    Returns:
        `time_ratio` and `energy_ratio`: what the rival took until its own best quality on the validation part, less
        `SLACK`, relative to what Shunter took until the same; None where Shunter never had it. `shared_time_ratio`: the
        same until the lesser of the two best qualities, less `SLACK`. `whole_time_ratio`: from the start of the process
        to its end. `quality_gap`: Shunter's quality on the test part minus the rival's.
    """
    best = best_quality(rival)
    shared = min(best, best_quality(shunter))
    return {
        "time_ratio": _ratio(rival, shunter, best - SLACK, "seconds"),
        "energy_ratio": _ratio(rival, shunter, best - SLACK, "joules"),
        "shared_time_ratio": _ratio(rival, shunter, shared - SLACK, "seconds"),
        "whole_time_ratio": round(rival["seconds"] / shunter["seconds"], 2),
        "quality_gap": round(shunter["test"] - rival["test"], 4),
    }


def _ratio(rival: Mapping[str, Any], shunter: Mapping[str, Any], quality: float, what: str) -> float | None:
    theirs, ours = first_reaching(rival, quality), first_reaching(shunter, quality)
    return None if theirs is None or ours is None or not ours[what] else round(theirs[what] / ours[what], 2)
