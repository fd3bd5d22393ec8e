"""The ranking in columns against the same thing said plainly, one candidate at a time."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.hardware.cost.billing import affordable_seconds
from shunter.planner.assessment import Candidate
from shunter.planner.rank.checks import nearest_relaxations
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms, billed_seconds
from shunter.requests import Billing, Limits, Weights
from tests.planner.test_decide import TEN_EPOCHS, candidate

factor = st.floats(1.0, 4.0)
candidates_strategy = st.lists(
    st.builds(
        candidate,
        st.sampled_from([64, 512, 4096]),
        seconds=st.sampled_from([1.0, 60.0, 361.5, 1e4]),
        joules=st.none() | st.sampled_from([0.1, 5e4, 1e6]),
        memory_gib=st.sampled_from([0.5, 8.0, 20.0]),
        threads=st.sampled_from([1, 2]),
        out_of_memory=st.booleans(),
        price=st.none() | st.sampled_from([0.5, 3.0]),
        interval=st.none() | st.tuples(factor.map(lambda f: 1 / f), factor),
        machines=st.sampled_from([1, 4]),
        quality_probability=st.none() | st.sampled_from([0.1, 0.6, 0.95]),
    ),
    min_size=1,
    max_size=12,
)
limit = st.none() | st.floats(0.01, 100)
limits_strategy = st.builds(
    Limits,
    max_hours=limit,
    max_kwh=limit,
    max_cost=limit,
    max_cost_per_hour=limit,
    max_watts=limit.map(lambda watts: watts and watts * 100),
    max_memory_gib=limit,
    min_auc=st.just(0.7),
    min_auc_probability=st.sampled_from([0.5, 0.9]),
    confidence=st.sampled_from([0.5, 0.9, 0.99]),
)
weights_strategy = st.sampled_from(["time", "energy", "cost", "time=1,energy=0.5", "time=2,cost=1,energy=3"]).map(
    Weights.parse
)


def plain_figures(candidate: Candidate, billing: Billing, confidence: float = 0.5) -> dict[str, float]:
    """Totals of ten epochs at a quantile of the step time; NaN where unknown."""
    prediction = candidate.prediction
    stretch = 1.0
    if prediction.step_seconds_interval is not None:
        sigma = math.log(prediction.step_seconds_interval[1] / prediction.step_seconds) / NormalDist().inv_cdf(0.95)
        stretch = math.exp(sigma * NormalDist().inv_cdf(confidence))
    seconds = prediction.epoch_seconds * 10 * stretch
    unit = {"exact": 0, "second": 1, "minute": 60, "hour": 3600}[billing]
    billed = max(60, math.ceil(seconds / unit - 1e-9) * unit) if unit else seconds
    price = math.nan if candidate.price_per_hour is None else candidate.price_per_hour * candidate.machines
    joules = math.nan if prediction.epoch_joules is None else prediction.epoch_joules
    return {
        "time": seconds / 3600,
        "energy": joules * 10 * stretch / 3.6e6,
        "cost": billed * price / 3600,
        "price": price,
        "watts": joules / prediction.epoch_seconds,
        "memory": prediction.memory_bytes / 2**30,
    }


def plainly_kept(candidate: Candidate, terms: Terms) -> bool:
    limits, sure = terms.limits, plain_figures(candidate, terms.billing, terms.limits.confidence)
    likely = plain_figures(candidate, terms.billing)
    asked = [
        (sure["time"], limits.max_hours),
        (sure["energy"], limits.max_kwh),
        (sure["cost"], limits.max_cost),
        (likely["price"], limits.max_cost_per_hour),
        (likely["watts"], limits.max_watts),
        (likely["memory"], limits.max_memory_gib),
    ]
    keeps = all(bound is None or value <= bound for value, bound in asked)
    known = not any(math.isnan(likely[quantity]) for quantity in terms.weights.used)
    good = candidate.quality_probability is None or candidate.quality_probability >= limits.min_auc_probability
    return keeps and known and good and candidate.fits


def plain_score(candidate: Candidate, terms: Terms) -> float:
    figures = plain_figures(candidate, terms.billing)
    used = terms.weights.used
    if len(used) == 1:
        return figures[next(iter(used))]
    return math.prod(figures[quantity] ** weight for quantity, weight in used.items())


def plainly_beaten(candidate: Candidate, other: Candidate, terms: Terms) -> bool:
    mine, yours = (
        [math.inf if math.isnan(figures[name]) else figures[name] for name in ("time", "energy", "cost")]
        for figures in (plain_figures(candidate, terms.billing), plain_figures(other, terms.billing))
    )
    return all(y <= m for y, m in zip(yours, mine, strict=True)) and yours != mine


@given(candidates_strategy, limits_strategy, weights_strategy, st.sampled_from(Billing))
def test_columns_say_the_same_as_the_plain_version(
    candidates: list[Candidate], limits: Limits, weights: Weights, billing: Billing
) -> None:
    terms = Terms(limits=limits, weights=weights, job=TEN_EPOCHS, billing=billing)
    ranking = rank(candidates, terms)
    feasible = [candidate for candidate in candidates if plainly_kept(candidate, terms)]
    assert sorted(map(id, candidates)) == sorted(id(row.candidate) for row in ranking.table), "each occurs once"
    assert [row.rank for row in ranking.table] == list(range(1, len(candidates) + 1))
    assert (ranking.considered, ranking.feasible) == (len(candidates), len(feasible))
    for row in ranking.table:
        assert (not row.excluded_by) == plainly_kept(row.candidate, terms), row
        if not row.excluded_by:
            assert row.score(weights) == pytest.approx(plain_score(row.candidate, terms))
            beaten = any(plainly_beaten(row.candidate, other, terms) for other in feasible)
            assert row.on_front is not beaten
        else:
            assert not row.on_front
    scores = [row.score(weights) for row in ranking.table[: len(feasible)]]
    assert scores == sorted(scores)
    excesses = [row.excess for row in ranking.table[len(feasible) :]]
    assert excesses == sorted(excesses)


@given(candidates_strategy, limits_strategy)
def test_of_very_many_candidates_the_table_keeps_what_is_told_of_them(
    candidates: list[Candidate], limits: Limits
) -> None:
    terms = Terms(limits=limits, weights=Weights.parse("time"), job=TEN_EPOCHS)
    everything = rank(candidates, terms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shunter.planner.rank.ranking.MOST_ROWS", 1)
        short = rank(candidates, terms)
    assert short.table[0] == everything.table[0]
    assert all(row == everything.table[row.rank - 1] for row in short.table)
    assert (short.considered, short.feasible, short.barred) == (len(candidates), everything.feasible, everything.barred)
    if not everything.feasible:
        found = [
            {tuple(row.bounds) for row in nearest_relaxations(ranking.table) if len(row.bounds) == 1}
            for ranking in (short, everything)
        ]
        assert found[0] == found[1]
        assert min(row.hours for row in short.table) == min(row.hours for row in everything.table)


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.sampled_from(Billing))
def test_what_is_affordable_is_charged_at_most_the_limit_and_a_unit_more_is_not(
    max_cost: float, price: float, billing: Billing
) -> None:
    def cost(seconds: float) -> float:
        return billed_seconds(np.array([seconds]), billing)[0] * price / 3600

    seconds = affordable_seconds(max_cost, price, billing)
    assert seconds == 0 or cost(seconds) <= max_cost * (1 + 1e-6)
    assert cost(max(seconds, 60) + 3600) > max_cost


@pytest.mark.parametrize(
    ("seconds", "exact", "second", "minute", "hour"),
    [
        (1.0, 1.0, 60, 60, 3600),
        (60.5, 60.5, 61, 120, 3600),
        (3600.0, 3600, 3600, 3600, 3600),
        (3601, 3601, 3601, 3660, 7200),
    ],
)
def test_each_started_unit_is_charged(seconds: float, exact: float, second: float, minute: float, hour: float) -> None:
    charged = [billed_seconds(np.array([seconds]), billing)[0] for billing in Billing]
    assert charged == [exact, second, minute, hour]
