"""What a version must be better than to become the champion."""

from collections.abc import Sequence

from reporting.card.figures import TaskQuality
from shunter.requests import Promote


def why_not_promoted(promote: Promote, quality: Sequence[TaskQuality]) -> str | None:
    """Why a version does not become the champion, in one sentence; None where it does.

    Args:
        promote: What was asked for.
        quality: Quality of each label on the test part with its intervals, the main one first.
    """
    doubt = None if promote == Promote.ALWAYS else doubt_of(quality)
    if doubt is None:
        return None
    return f"Not promoted: {doubt}; give more data, or promote whatever comes of it with --promote always."


def doubt_of(quality: Sequence[TaskQuality]) -> str | None:
    """Why a model may be no better than always predicting the base rate; None where it is, with 95 % confidence.

    It is where the interval of its NE on the test part lies below 1.
    """
    ne = next((figure for one in quality[:1] for figure in one.figures if figure.name == "ne"), None)
    if ne is None or ne.value is None or ne.low is None or ne.high is None:
        return "its NE on the test part has no interval, for too few rows of one class are in it"
    if ne.high >= 1:
        return (
            f"its NE on the test part, {ne.value:.4f}, lies between {ne.low:.4f} and {ne.high:.4f} with 95 % "
            "confidence, so that it may be no better than always predicting the base rate (NE 1)"
        )
    return None
