"""What past predictions promise of the next job, and that it holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.planner.calibration import SLACK, UNCALIBRATED, Calibration, Ratios
from shunter.planner.decide import decide
from shunter.planner.rank.totals import START_ELSEWHERE_SECONDS, Terms
from shunter.requests import Limits
from tests.planner.test_decide import TEN_EPOCHS, candidate

DRAWS = 4000
HALF_TO_DOUBLE = Ratios.of((1.0, 2.0**share) for share in np.linspace(-1, 1, 19))


def ratios(rng: np.random.Generator, runs: int) -> np.ndarray:
    """Jobs that take about half of what was predicted, some of them far more: skewed, with a heavy tail."""
    return 0.5 * np.exp(0.3 * rng.standard_t(3, (DRAWS, runs)) + 0.2 * rng.exponential(size=(DRAWS, runs)))


@pytest.mark.parametrize(("runs", "level"), [(3, 0.5), (8, 0.5), (9, 0.8), (18, 0.8), (19, 0.9), (40, 0.9)])
def test_the_interval_holds_the_next_job_as_often_as_it_says(runs: int, level: float) -> None:
    seen = ratios(np.random.default_rng(runs), runs + 1)
    inside = 0
    for *past, coming in seen:
        found = Ratios.of((1.0, ratio) for ratio in past)
        assert found.level == level
        low, high = found.interval() or (0.0, 0.0)
        inside += low <= coming <= high
    assert inside / DRAWS == pytest.approx(level, abs=0.03)


@pytest.mark.parametrize(("runs", "confidence"), [(3, 0.5), (9, 0.9), (25, 0.9), (19, 0.95)])
def test_a_bound_is_kept_as_often_as_it_says(runs: int, confidence: float) -> None:
    seen = ratios(np.random.default_rng(runs), runs + 1)
    kept = sum(coming <= (Ratios.of((1.0, ratio) for ratio in past).bound(confidence) or 0.0) for *past, coming in seen)
    assert kept / DRAWS == pytest.approx(confidence, abs=0.03)


def test_the_chance_to_stay_below_a_limit_is_the_share_that_does() -> None:
    seen, limit = ratios(np.random.default_rng(1), 13), 0.6
    chances = np.array([Ratios.of((1.0, ratio) for ratio in past).chance_below(limit) for *past, _ in seen])
    stays = seen[:, -1] <= limit
    assert chances.mean() == pytest.approx(stays.mean(), abs=0.03)


def test_without_enough_jobs_nothing_is_promised_nor_changed() -> None:
    few = Ratios.of([(10.0, 20.0), (10.0, 21.0)])
    for unknown in (Ratios(), few):
        assert (unknown.centre, unknown.level, unknown.interval()) == (1.0, None, None)
        assert unknown.bound(0.5) is None
        assert unknown.chance_below(1.0) is None
    assert HALF_TO_DOUBLE.bound(0.96) is None, "no twentieth job was seen that lies beyond"


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=60), st.floats(0.05, 0.95))
def test_bound_and_chance_are_inverse_and_the_interval_holds_the_centre(seen: list[float], confidence: float) -> None:
    found = Ratios.of((2.0, 2.0 * ratio) for ratio in seen)
    low, high = found.interval() or (0.0, 0.0)
    assert low <= found.centre * (1 + 1e-9)
    assert found.centre <= high * (1 + 1e-9)
    bound = found.bound(confidence)
    if bound is not None:
        assert (found.chance_below(bound * (1 + 1e-9)) or 0.0) >= min(confidence, len(seen) / (len(seen) + 1)) - 1e-6
    chances = [found.chance_below(factor) or 0.0 for factor in (1e-3, *sorted(seen), 1e3)]
    assert chances == sorted(chances)
    assert 0 < chances[0] <= chances[-1] < 1


class TestDecision:
    CALIBRATION = Calibration(known=True, seconds=Ratios.of((4.0, 2.0 * 2.0**x) for x in np.linspace(-1, 1, 19)))
    SURE, UNSURE = candidate(64, seconds=400, interval=(0.95, 1.05)), candidate(512, interval=(0.5, 2.0))

    def terms(self, **limits: float) -> Terms:
        return Terms.of(Limits(**limits), "time", TEN_EPOCHS, calibration=self.CALIBRATION)

    def test_the_figures_of_a_job_are_set_right_and_bounded_by_past_jobs(self) -> None:
        row = decide([self.UNSURE], self.terms()).chosen
        assert row.hours == pytest.approx(0.5)
        assert row.hours_interval == pytest.approx((0.25 / (1 + SLACK), 1 + SLACK))
        assert (row.time_level, row.energy_level, row.memory_level) == (0.9, None, None)
        assert row.kwh == pytest.approx(0.05), "estimated energy follows the time"

    def test_the_order_stays_and_a_kept_prediction_is_the_uncalibrated_one(self) -> None:
        decision = decide([self.UNSURE, self.SURE], self.terms())
        assert decision.placement == decide([self.UNSURE, self.SURE], Terms.of(Limits(), "time", TEN_EPOCHS)).placement
        assert decision.uncalibrated == (pytest.approx(3600), pytest.approx(360_000))
        assert decision.plan_seconds == pytest.approx(3600)

    def test_a_limit_with_confidence_is_judged_by_what_past_jobs_took(self) -> None:
        assert decide([self.UNSURE], self.terms(max_hours=0.95, confidence=0.9)).placement.batch_size == 512
        assert (
            "that on time with probability 95% by 19 past jobs"
            in decide([self.UNSURE], self.terms(max_hours=1.1)).explanation
        )

    def test_what_is_not_here_has_no_record_and_promises_nothing(self) -> None:
        there = self.UNSURE.model_copy(update={"is_here": False})
        row = decide([there], self.terms()).chosen
        start = 1 + START_ELSEWHERE_SECONDS / 3_600  # of a predicted hour
        assert row.hours_interval == pytest.approx((0.25 * start, start)), "unpromised"
        assert row.time_level is None

    def test_energy_by_a_counter_is_calibrated_by_counters_alone(self) -> None:
        joules = Ratios.of((1.0, 1.0 + share) for share in np.linspace(-0.1, 0.1, 9))
        metered = self.UNSURE.prediction.model_copy(update={"energy_source": "measured"})
        both = [self.UNSURE, self.SURE.model_copy(update={"prediction": metered})]
        terms = Terms.of(Limits(), "time", TEN_EPOCHS, calibration=Calibration(joules=joules))
        levels = {row.candidate.prediction.energy_source: row.energy_level for row in decide(both, terms).table}
        assert levels == {"estimated": None, "measured": 0.8}

    def test_nothing_is_promised_before_the_fifth_run_of_a_job(self) -> None:
        for runs, level in ((3, None), (4, 0.9)):
            calibration = self.CALIBRATION.model_copy(update={"job_runs": runs})
            row = decide([self.UNSURE], Terms.of(Limits(), "time", TEN_EPOCHS, calibration=calibration)).chosen
            assert row.time_level == level

    def test_memory_is_bounded_about_what_was_predicted_and_estimated_energy_by_its_steps(self) -> None:
        memory = Ratios.of((1.0, 1.5 + share) for share in np.linspace(-0.1, 0.1, 9))
        calibration = self.CALIBRATION.model_copy(update={"memory": memory})
        row = decide([self.UNSURE], Terms.of(Limits(), "time", TEN_EPOCHS, calibration=calibration)).chosen
        assert row.memory_interval == pytest.approx((1.4 * row.memory_gib, 1.6 * row.memory_gib), rel=2 * SLACK)
        assert row.memory_level == 0.8
        assert row.kwh_interval == pytest.approx((0.025, 0.1)), "half to double, as its steps"
        sure = decide([self.SURE], Terms.of(Limits(), "time", TEN_EPOCHS, calibration=calibration)).chosen
        assert sure.kwh is not None
        assert sure.kwh_interval == pytest.approx((0.95 * sure.kwh, 1.05 * sure.kwh))

    def test_without_a_record_the_words_promise_nothing(self) -> None:
        decision = decide([self.UNSURE, self.SURE], Terms.of(Limits(max_hours=3), "time", TEN_EPOCHS))
        assert decision.calibration == UNCALIBRATED
        assert "%" not in decision.explanation.replace("11.1% more", "")
        assert "probability" not in decision.explanation
