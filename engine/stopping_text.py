"""Texts of stop reasons, for people; no decision reads them."""

from collections.abc import Callable, Mapping
from typing import Any

from shunter.engine.stopping import StopKind, StopLimit, StopReason

Details = Mapping[str, float | str]
OLD = "text"  # detail that holds the text of a run that stored no typed reason
BUDGET = "budget: "  # prefix of the text of a training run that did not end by its schedule


def stop_text(reason: StopReason) -> str:
    """Return the reason why training or search ended, as one sentence."""
    if OLD in reason.details:
        return str(reason.details[OLD])
    return _TEXTS[reason.kind, reason.limit](reason.details)


def training_stop_text(reason: StopReason) -> str:
    """Return the reason as training runs show it: the name of the schedule's rule, or `budget: ` and a sentence."""
    return stop_text(reason) if reason.is_scheduled else f"{BUDGET}{stop_text(reason)}"


def stop_reason_of_old_text(text: str) -> StopReason:
    """Return the reason of a text that an earlier version stored without a typed reason."""
    if text in (StopKind.MAX_EPOCHS, StopKind.PATIENCE, StopKind.SOLVED):
        return StopReason(StopKind(text))
    sentence = text.removeprefix(BUDGET)
    known = (
        (text.startswith("trained before"), StopKind.EARLIER, None),
        ("The time limit of" in text, StopKind.LIMIT, StopLimit.TIME),
        ("The energy limit of" in text, StopKind.LIMIT, StopLimit.ENERGY),
        ("The cost limit of" in text, StopKind.LIMIT, StopLimit.COST),
        ("minutes of the search" in text, StopKind.SEARCH_BUDGET, StopLimit.TIME),
        (" of the search " in text or "The search's" in text, StopKind.SEARCH_BUDGET, StopLimit.ENERGY),
        ("The exploration has taken" in text, StopKind.EXPLORATION, StopLimit.TIME),
        ("no other point" in text, StopKind.EXHAUSTED, None),
    )
    for is_so, kind, limit in known:
        if is_so:
            return StopReason(kind, limit, {OLD: sentence})
    return StopReason(StopKind.PRUNED, None, {OLD: sentence})


def with_stop_reason(values: Any) -> Any:
    """Return stored values with a typed `stop_reason` instead of the text `stopped_because` of earlier versions."""
    if not isinstance(values, dict) or "stopped_because" not in values:
        return values
    kept = {name: value for name, value in values.items() if name != "stopped_because"}
    text = values["stopped_because"]
    return {"stop_reason": text and stop_reason_of_old_text(text), **kept}


def _energy_limit(details: Details) -> str:
    limit = f"The energy limit of {details['kwh']:.4g} kWh"
    if "unavailable" in details:
        return f"{limit} cannot be kept, since energy is unavailable: {details['unavailable']}."
    return _used_up(limit, details)


def _used_up(limit: str, details: Details) -> str:
    """Return a sentence: the limit is used up, or leaves no time for a training run."""
    if "needed_seconds" not in details:
        return f"{limit} is used up."
    used, needed = details["used_seconds"], details["needed_seconds"]
    return f"{limit} leaves no time to train: {used:.3g} s are used, and the other steps need {needed:.3g} s more."


def _search_minutes(details: Details) -> str:
    reserved = details.get("reserved_minutes")
    rest = f", but for {reserved:.2g} in which seeds of the best setting are trained" if reserved else ""
    return f"The {details['minutes']:.4g} minutes of the search are used up{rest}."


def _search_energy(details: Details) -> str:
    if "unavailable" in details:
        return f"The {details['kwh']:.4g} kWh of the search cannot be watched, since no meter of energy works here."
    return f"The {details['kwh']:.4g} kWh of the search are used up."


def _share_of_time(details: Details) -> str:
    if "minutes" in details:
        return f"Baselines have had {details['share']:.0%} of the {details['minutes']:.4g} minutes."
    return "its share of the time is used"


def _pruned(details: Details) -> str:
    if "samples" in details:
        return f"another learning rate was ahead after {details['samples']:,.0f} samples"
    return "others were better by this epoch" if "epochs" in details else "Others were better at the same point."


_TEXTS: dict[tuple[StopKind, StopLimit | None], Callable[[Details], str]] = {
    (StopKind.MAX_EPOCHS, None): lambda _: "max_epochs",
    (StopKind.PATIENCE, None): lambda _: "patience",
    (StopKind.SOLVED, None): lambda _: "solved",
    (StopKind.EARLIER, None): lambda details: f"trained before, as version {details['version']}",
    (StopKind.TRIALS, None): lambda _: "all trials were made",
    (StopKind.EXHAUSTED, None): lambda _: "The method has no other point to propose.",
    (StopKind.LIMIT, StopLimit.TIME): lambda details: _used_up(f"The time limit of {details['hours']:.4g} h", details),
    (StopKind.LIMIT, StopLimit.ENERGY): _energy_limit,
    (StopKind.LIMIT, StopLimit.COST): lambda details: _used_up(f"The cost limit of {details['cost']:.4g}", details),
    (StopKind.SEARCH_BUDGET, StopLimit.TIME): _search_minutes,
    (StopKind.SEARCH_BUDGET, StopLimit.ENERGY): _search_energy,
    (StopKind.SHARE, StopLimit.TIME): _share_of_time,
    (StopKind.SHARE, StopLimit.ENERGY): lambda _: "its share of the energy is used",
    (StopKind.EXPLORATION, StopLimit.TIME): lambda details: (
        f"The exploration has taken {details['multiple']:g} times the expected total of the incumbent."
    ),
    (StopKind.PRUNED, None): _pruned,
    (StopKind.SCREENING, None): lambda _: "It was the screening of its family.",
    (StopKind.INTERRUPTED, None): lambda _: "stopped by the first process",
}
