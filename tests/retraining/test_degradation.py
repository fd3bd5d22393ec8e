"""A champion that is no better than the base rate, or worse than ever, is found, told, and put away if requested."""

from datetime import date

import numpy as np
import pytest
from scipy.special import expit

from shunter.engine.metrics import row_losses
from shunter.errors import DegradedModelError, RequestError
from shunter.retraining import degradation
from shunter.retraining.degradation import Degradation, find_degradation, respond
from shunter.retraining.nightly_command import check_degradation
from shunter.retraining.nightly_request import WhenBroken
from shunter.retraining.nights import Night, Outcome
from shunter.tracking.registry.judgement import Judgement, compare_losses
from shunter.tracking.registry.versions import Version

DAY = date(2026, 5, 4)
BROKEN = Degradation(version=3, day=DAY, ne=2.05, ne_low=1.9)
LESS = BROKEN.model_copy(update={"ne": 0.98, "ne_low": 0.97, "usual": 0.95})


def judged(strength: float, seed: int = 0, rows: int = 2_000) -> tuple[Judgement, float]:
    """A champion that follows what drives the labels, or at a negative strength its opposite."""
    random = np.random.default_rng(seed)
    truth = random.normal(0, 1, rows)
    labels = (random.random(rows) < expit(truth - 1)).astype(float)
    losses = row_losses(labels, strength * truth - 1)
    return compare_losses(losses, losses, margin=0.0, confidence=0.95, seed=seed), float(labels.mean())


def found(strength: float, past: list[float], seed: int = 0) -> Degradation | None:
    judgement, base_rate = judged(strength, seed)
    return find_degradation(judgement, 3, DAY, base_rate, past)


def test_a_champion_that_the_base_rate_beats_is_found_and_a_useful_one_is_not() -> None:
    broken = found(-1.0, [])
    assert broken is not None
    assert broken.ne > broken.ne_low >= 1
    assert (broken.usual, broken.version, broken.finding.kind) == (None, 3, "degraded")
    assert found(1.0, []) is None


def test_chance_alone_raises_no_alarm() -> None:
    """Of 200 champions as good as the base rate at most 5 % are found, and 20 (10 %) would happen once in 500."""
    assert sum(found(0.0, [], seed) is not None for seed in range(200)) < 20


def test_a_champion_worse_than_its_past_is_found_once_five_nights_tell_what_is_usual() -> None:
    past = [0.85, 0.86, 0.84, 0.85, 0.86]
    worse = found(0.25, past)
    assert worse is not None
    assert worse.usual is not None
    assert worse.usual == pytest.approx(np.mean(past) + 3 * np.std(past, ddof=1))
    assert worse.usual < worse.ne_low < 1
    assert found(0.25, past[:4]) is None
    assert found(1.0, past) is None


def night(outcome: Outcome = "kept") -> Night:
    return Night(outcome=outcome, day=DAY, reason="So it is.", champion=3, run_id="run")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Events, and a registry that puts version 2 back."""
    events: list[str] = []
    monkeypatch.setattr(degradation, "announce", lambda happening, *_: events.append(happening))
    monkeypatch.setattr(degradation, "roll_back", lambda _: (None, Version("shop", 2, "", {})))
    return events


def test_degraded_champion_that_stays_is_an_event_a_finding_and_an_exit_code(told: list[str]) -> None:
    after = respond(night(), BROKEN, "shop", WhenBroken.PROMOTE)
    assert (after.outcome, after.champion, told) == ("kept", 3, ["degraded"])
    assert [finding.kind for finding in after.findings] == ["degraded"]
    with pytest.raises(DegradedModelError) as error:
        check_degradation(after)
    assert (error.value.code, error.value.exit_code) == ("degraded-model", 4)


def test_replaced_champion_is_told_and_no_error(told: list[str]) -> None:
    after = respond(night("promoted"), BROKEN, "shop", WhenBroken.ROLLBACK)
    check_degradation(after)
    assert (after.outcome, told) == ("promoted", ["degraded"])


def test_rollback_is_for_a_champion_that_the_base_rate_beats(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert respond(night(), LESS, "shop", WhenBroken.ROLLBACK).outcome == "kept"
    after = respond(night(), BROKEN, "shop", WhenBroken.ROLLBACK)
    check_degradation(after)
    assert (after.outcome, after.champion, told) == ("rolled back", 2, ["degraded", "degraded", "rolled-back"])

    def nothing(_: str) -> None:
        raise RequestError("There is nothing to roll back to.")

    monkeypatch.setattr(degradation, "roll_back", nothing)
    assert respond(night(), BROKEN, "shop", WhenBroken.ROLLBACK).is_degraded


def test_night_without_a_degraded_champion_is_as_it_was(told: list[str]) -> None:
    assert respond(night(), None, "shop", WhenBroken.ROLLBACK) == night()
    check_degradation(night())
    assert told == []
