"""Conditions under which a version becomes the champion: it must beat a trivial model."""

from collections.abc import Sequence

from shunter.reporting.card.figures import TaskQuality
from shunter.requests import Promote


def why_not_promoted(promote: Promote, quality: Sequence[TaskQuality]) -> str | None:
    """Return why a click model does not become the champion, in one sentence; None if it may.

    Args:
        promote: Requested condition.
        quality: Quality of each label on the test part with its intervals, the main one first.
    """
    return _refusal(promote, doubt_of(quality))


def why_ranker_not_promoted(promote: Promote, gain: tuple[float, float] | None) -> str | None:
    """Return why a graph model does not become the champion, in one sentence; None if it may.

    Args:
        promote: Requested condition.
        gain: 95 % interval of NDCG@20 on the test part, minus that of the order by popularity; None if not compared.
    """
    return _refusal(promote, doubt_of_ranker(gain))


def _refusal(promote: Promote, doubt: str | None) -> str | None:
    if doubt is None or promote == Promote.ALWAYS:
        return None
    return (
        f"Not promoted: {doubt}; give more data, promote whatever comes of it with --promote always, or this version "
        "with `shunter rollback --to VERSION`."
    )


def doubt_of_ranker(gain: tuple[float, float] | None) -> str | None:
    """Return why a graph model may not beat the order by popularity; None if it does with 95 % confidence.

    Args:
        gain: 95 % interval of NDCG@20 on the test part, minus that of the order by popularity; None if not compared.
    """
    if gain is None:
        return "it was not compared with the order by popularity"
    if gain[0] > 0:
        return None
    return (
        f"its NDCG@20 on the test part less that of the order by popularity is between {gain[0]:.4f} and "
        f"{gain[1]:.4f} with 95 % confidence, so that it may be no better"
    )


def doubt_of(quality: Sequence[TaskQuality]) -> str | None:
    """Return why a model may not beat a constant prediction of the base rate; None if it does with 95 % confidence.

    It does if the interval of its NE on the test part is below 1.
    """
    name, baseline = "NE", "always predicting the base rate (NE 1)"
    if quality and quality[0].is_number:
        name, baseline = "relative loss", "the best constant prediction (1)"
    names = ("ne", "relative_loss")
    ne = next((figure for one in quality[:1] for figure in one.figures if figure.name in names), None)
    if ne is None:
        return "no row of the test part has a label"
    if ne.value is None or ne.low is None or ne.high is None:
        return f"its {name} on the test part has no interval: {quality[0].no_interval_text}"
    if ne.high >= 1:
        return (
            f"its {name} on the test part, {ne.value:.4f}, is between {ne.low:.4f} and {ne.high:.4f} with 95 % "
            f"confidence, so that it may be no better than {baseline}"
        )
    return None
