"""The texts of reasons to stop: the one place that asserts their wording."""

import pytest

from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.engine.stopping_text import stop_reason_of_old_text, stop_text, training_stop_text

LIMIT, SEARCH, SHARE = StopKind.LIMIT, StopKind.SEARCH_BUDGET, StopKind.SHARE
TIME, ENERGY, COST = StopLimit.TIME, StopLimit.ENERGY, StopLimit.COST

SENTENCES = [
    (StopReason(LIMIT, TIME, {"hours": 2.0}), "The time limit of 2 h is used up."),
    (StopReason(LIMIT, ENERGY, {"kwh": 0.5}), "The energy limit of 0.5 kWh is used up."),
    (
        StopReason(LIMIT, ENERGY, {"kwh": 0.5, "unavailable": "no counter"}),
        "The energy limit of 0.5 kWh cannot be kept, since energy is unavailable: no counter.",
    ),
    (StopReason(LIMIT, COST, {"cost": 7.0}), "The cost limit of 7 is used up."),
    (StopReason(SEARCH, TIME, {"minutes": 20.0}), "The 20 minutes of the search are used up."),
    (
        StopReason(SEARCH, TIME, {"minutes": 20.0, "reserved_minutes": 10.0}),
        "The 20 minutes of the search are used up, but for 10 in which seeds of the best setting are trained.",
    ),
    (StopReason(SEARCH, ENERGY, {"kwh": 0.05}), "The 0.05 kWh of the search are used up."),
    (
        StopReason(SEARCH, ENERGY, {"kwh": 0.05, "unavailable": "no meter"}),
        "The 0.05 kWh of the search cannot be watched, since no meter of energy works here.",
    ),
    (StopReason(SHARE, TIME, {"share": 0.25, "minutes": 5.0}), "Baselines have had 25% of the 5 minutes."),
    (StopReason(SHARE, TIME), "its share of the time is used"),
    (StopReason(SHARE, ENERGY), "its share of the energy is used"),
    (
        StopReason(StopKind.EXPLORATION, TIME, {"multiple": 2.0}),
        "The exploration has taken 2 times the expected total of the incumbent.",
    ),
    (StopReason(StopKind.PRUNED), "Others were better at the same point."),
    (StopReason(StopKind.PRUNED, None, {"epochs": 3}), "others were better by this epoch"),
    (StopReason(StopKind.PRUNED, None, {"samples": 2000}), "another learning rate was ahead after 2,000 samples"),
    (StopReason(StopKind.SCREENING), "It was the screening of its family."),
    (StopReason(StopKind.EXHAUSTED), "The method has no other point to propose."),
    (StopReason(StopKind.INTERRUPTED), "stopped by the first process"),
]
BY_SCHEDULE = [
    (StopReason(StopKind.MAX_EPOCHS), "max_epochs"),
    (StopReason(StopKind.PATIENCE), "patience"),
    (StopReason(StopKind.SOLVED), "solved"),
    (StopReason(StopKind.EARLIER, None, {"version": "3"}), "trained before, as version 3"),
]


@pytest.mark.parametrize(("reason", "text"), SENTENCES)
def test_a_training_that_its_schedule_did_not_end_names_its_budget(reason: StopReason, text: str) -> None:
    assert stop_text(reason) == text
    assert training_stop_text(reason) == f"budget: {text}"


@pytest.mark.parametrize(("reason", "text"), BY_SCHEDULE)
def test_the_end_of_a_schedule_is_named_by_its_rule(reason: StopReason, text: str) -> None:
    assert training_stop_text(reason) == text


def test_a_search_that_made_all_trials_says_so() -> None:
    assert stop_text(StopReason(StopKind.TRIALS)) == "all trials were made"


@pytest.mark.parametrize(("reason", "text"), [*SENTENCES, *BY_SCHEDULE])
def test_the_text_that_an_earlier_version_kept_is_shown_as_it_was(reason: StopReason, text: str) -> None:
    old = stop_reason_of_old_text(training_stop_text(reason))
    assert training_stop_text(old) == training_stop_text(reason)
    assert old.is_scheduled == reason.is_scheduled


@pytest.mark.parametrize(
    ("text", "kind", "limit"),
    [
        ("max_epochs", StopKind.MAX_EPOCHS, None),
        ("patience", StopKind.PATIENCE, None),
        ("solved", StopKind.SOLVED, None),
        ("trained before, as version 3", StopKind.EARLIER, None),
        ("budget: The time limit of 2 h is used up.", LIMIT, TIME),
        ("budget: The energy limit of 1 kWh is used up.", LIMIT, ENERGY),
        ("budget: The energy limit of 1 kWh cannot be kept, since energy is unavailable: none.", LIMIT, ENERGY),
        ("budget: The cost limit of 7 is used up.", LIMIT, COST),
        ("budget: The 20 minutes of the search are used up.", SEARCH, TIME),
        ("The 0.05 kWh of the search are used up.", SEARCH, ENERGY),
        ("budget: The search's 0.05 kWh are used up.", SEARCH, ENERGY),
        (
            "budget: The exploration has taken 2 times the expected total of the incumbent.",
            StopKind.EXPLORATION,
            TIME,
        ),
        ("The method has no other point to propose.", StopKind.EXHAUSTED, None),
        ("budget: others were better by this epoch", StopKind.PRUNED, None),
    ],
)
def test_an_old_text_stands_for_the_reason_that_it_named(text: str, kind: StopKind, limit: StopLimit | None) -> None:
    old = stop_reason_of_old_text(text)
    assert (old.kind, old.limit) == (kind, limit)
