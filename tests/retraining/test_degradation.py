"""A champion that is no better than the base rate, or worse than ever, is found, told, and put away if requested."""

from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.special import expit

from shunter.engine.metrics import row_losses
from shunter.errors import DegradedModelError, RequestError
from shunter.retraining import challenger, degradation
from shunter.retraining.challenger import NightlyContext
from shunter.retraining.champion import Champion
from shunter.retraining.degradation import Degradation, find_degradation, find_ranking_degradation, respond
from shunter.retraining.nightly_command import check_degradation
from shunter.retraining.nightly_request import NightlyRequest, WhenBroken
from shunter.retraining.nightly_runs import NightlyResult, Outcome
from shunter.retraining.plan import NightlyPlan
from shunter.tracking.registry.champion_comparison import ChampionComparison, compare_losses
from shunter.tracking.registry.ranker_comparison import RankingComparison
from shunter.tracking.registry.versions import Version

DAY = date(2026, 5, 4)
BROKEN = Degradation(version=3, day=DAY, ne=2.05, ne_low=1.9)
LESS = BROKEN.model_copy(update={"ne": 0.98, "ne_low": 0.97, "usual": 0.95})


def judged(strength: float, seed: int = 0, rows: int = 2_000) -> tuple[ChampionComparison, float]:
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


def night(outcome: Outcome = "kept") -> NightlyResult:
    return NightlyResult(outcome=outcome, day=DAY, reason="So it is.", champion=3, run_id="run")


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


def test_champion_that_met_no_challenger_is_judged_alone(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a night that has learned its last day too: the next one has no new day to learn."""
    judgement, base_rate = judged(-1.0)
    metrics: dict[str, float] = {}
    asked: list[tuple[object, object]] = []

    def judge(
        _request: object, _log: object, champion: object, challenger: object, _gains: object
    ) -> ChampionComparison:
        asked.append((champion, challenger))
        return judgement.model_copy(update={"base_rate": base_rate})

    monkeypatch.setattr(challenger, "evaluate_challenger", judge)
    monkeypatch.setattr(degradation, "nightly_runs_of", lambda _: [])
    monkeypatch.setattr(
        degradation, "open_run", lambda _: SimpleNamespace(log_figures=lambda _, figures: metrics.update(figures))
    )
    request = NightlyRequest(data="{date}.csv", learn_last_day=True)
    plan = NightlyPlan(held_out=DAY, training=(DAY - timedelta(days=1),), missing=(), findings=())
    state: Any = SimpleNamespace(directory=Path())
    context = NightlyContext(request, plan, {DAY: cast(Any, None)}, state, "run", cast(Any, None))
    champion = Champion(Version("shop", 3, "", {}), cast(Any, "files"), frozenset(plan.training))
    found, winner, _ = challenger._score_alone(context, champion, "Nothing is new.")
    assert asked == [("files", "files")]
    assert (found.keeps_champion, found.is_degraded, winner, told) == (True, True, champion, ["degraded"])
    assert metrics[degradation.CHAMPION_NE] > 1
    with pytest.raises(DegradedModelError):
        check_degradation(found)


def ranked(ndcg20: float) -> RankingComparison:
    figures = dict.fromkeys(("challenger_ndcg20", "popularity_ndcg20", "gain", "gain_low", "gain_high", "needed"), 0.0)
    return RankingComparison(users=9, champion_ndcg20=ndcg20, confidence=0.95, is_better=False, **figures)


def test_ranking_champion_worse_than_its_past_is_found_and_never_rolled_back(told: list[str]) -> None:
    past = [0.31, 0.3, 0.29, 0.3, 0.31]
    assert find_ranking_degradation(ranked(0.1), 3, DAY, past[:4]) is None
    assert find_ranking_degradation(ranked(0.29), 3, DAY, past) is None
    worse = find_ranking_degradation(ranked(0.1), 3, DAY, past)
    assert worse is not None
    assert worse.ndcg20 < worse.usual == pytest.approx(np.mean(past) - 3 * np.std(past, ddof=1))
    after = respond(night(), worse, "shop", WhenBroken.ROLLBACK)
    assert (after.outcome, after.is_degraded, told) == ("kept", True, ["degraded"])


def test_night_without_a_degraded_champion_is_as_it_was(told: list[str]) -> None:
    assert respond(night(), None, "shop", WhenBroken.ROLLBACK) == night()
    check_degradation(night())
    assert told == []
