"""The choice as tables: candidates with figures in, the placement and its reason out."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import InfeasibleError
from shunter.hardware.cost.grid import Grid
from shunter.hardware.types import Placement, Prediction
from shunter.planner.assessment import Candidate
from shunter.planner.decide import Decision, NoFeasiblePlacementError, decide
from shunter.planner.job_size import JobSize
from shunter.planner.rank.totals import Terms
from shunter.requests import Billing, Limits, Objective

TEN_EPOCHS = JobSize(tuning_epochs=6, final_epochs=4, evaluation_share=0.0)


GRID = Grid(grams_per_kwh=(400.0,))


def candidate(
    batch_size: int = 512,
    *,
    seconds: float = 360.0,
    joules: float | None = 36_000.0,
    memory_gib: float = 1.0,
    threads: int = 1,
    accelerator_gib: float = 16.0,
    out_of_memory: bool = False,
    price: float | None = 1.0,
    interval: tuple[float, float] | None = None,
    **others: Any,
) -> Candidate:
    """One epoch in 360 s and 0.01 kWh, so ten in 1 h and 0.1 kWh, at 1 an hour; `interval` as factors on the time."""
    return Candidate(
        placement=Placement(accelerator="cpu", threads=threads, precision="fp32", batch_size=batch_size),
        prediction=Prediction(
            step_seconds=0.01,
            epoch_seconds=seconds,
            epoch_joules=joules,
            memory_bytes=int(memory_gib * 2**30),
            samples_per_second=1.0,
            step_seconds_source="measured",
            energy_source="unavailable" if joules is None else "estimated",
            step_seconds_interval=None if interval is None else (0.01 * interval[0], 0.01 * interval[1]),
        ),
        accelerator_memory_bytes=int(accelerator_gib * 2**30),
        out_of_memory=out_of_memory,
        price_per_hour=price,
        price_source=None if price is None else "given",
        **others,
    )


SLOW_FRUGAL = candidate(64, seconds=720, joules=18_000)
FAST_HUNGRY = candidate(4096, seconds=180, joules=72_000, memory_gib=8)
MIDDLE = candidate(512)


def decided(*candidates: Candidate, objective: str = "time", job: JobSize = TEN_EPOCHS, **limits: Any) -> Decision:
    return decide(candidates, Terms.of(Limits(**limits), objective, job))


def refused(*candidates: Candidate, **limits: Any) -> NoFeasiblePlacementError:
    with pytest.raises(NoFeasiblePlacementError) as raised:
        decided(*candidates, **limits)
    return raised.value


@pytest.mark.parametrize(
    ("limits", "objective", "chosen", "binds"),
    [
        pytest.param({}, "time", FAST_HUNGRY, None, id="least time"),
        pytest.param({}, "energy", SLOW_FRUGAL, None, id="least energy"),
        pytest.param({}, "cost", FAST_HUNGRY, None, id="least cost at one price is least time"),
        pytest.param({"max_kwh": 0.15}, "time", MIDDLE, "energy", id="energy limit"),
        pytest.param({"max_hours": 1.5}, "energy", MIDDLE, "time", id="time limit"),
        pytest.param({"max_cost": 1.5}, "energy", MIDDLE, "cost", id="cost limit"),
        pytest.param({"max_memory_gib": 4}, "time", MIDDLE, "memory", id="memory limit"),
        pytest.param({"max_hours": 1.0}, "energy", MIDDLE, "time", id="exactly at the limit is within"),
        pytest.param(
            {"max_hours": 1.5}, "time", FAST_HUNGRY, None, id="a limit that excludes a worse one does not bind"
        ),
    ],
)
def test_choice(limits: dict[str, Any], objective: str, chosen: Candidate, binds: str | None) -> None:
    decision = decided(SLOW_FRUGAL, FAST_HUNGRY, MIDDLE, objective=objective, **limits)
    assert decision.placement == chosen.placement
    assert decision.binds == binds
    assert [row.rank for row in decision.table] == [1, 2, 3]


def test_totals_are_those_of_the_whole_job() -> None:
    job = JobSize(tuning_epochs=6, final_epochs=4, evaluation_share=0.1)
    decision = decided(candidate(price=2.0), job=job)
    assert (decision.hours, decision.kwh, decision.cost) == pytest.approx((1.1, 0.11, 2.2))
    assert decision.memory_gib == 1.0


def test_a_search_by_its_own_budget_takes_it_wherever_it_runs() -> None:
    minutes = JobSize(tuning_epochs=0, final_epochs=4, evaluation_share=0.0, tuning_seconds=1_800)
    decision = decided(MIDDLE, job=minutes)
    assert (decision.hours, decision.kwh) == pytest.approx((4 * 0.1 + 0.5, 4 * 0.01 + 0.05))
    energy = minutes.model_copy(update={"tuning_joules": 36_000.0})  # 100 W, so six of the thirty minutes
    assert decided(MIDDLE, job=energy).hours == pytest.approx(4 * 0.1 + 0.1)
    decision = decided(candidate(joules=None), job=energy)
    assert decision.hours == pytest.approx(4 * 0.1 + 0.5)
    assert decision.kwh is None


@pytest.mark.parametrize(
    ("better", "wish", "limit"),
    [
        pytest.param({"memory_gib": 20}, {}, "memory of cpu", id="does not fit its accelerator"),
        pytest.param({"out_of_memory": True}, {}, "memory of cpu", id="a probe ran out of memory"),
        pytest.param({"joules": None}, {"max_kwh": 9}, "energy", id="unknown energy keeps no limit"),
        pytest.param({"joules": None}, {"objective": "energy"}, "energy", id="unknown energy does not win"),
    ],
)
def test_what_is_excluded_whatever_its_time(better: dict[str, Any], wish: dict[str, Any], limit: str) -> None:
    decision = decided(candidate(8192, seconds=1, **better), MIDDLE, **wish)
    assert decision.placement == MIDDLE.placement
    (violation,) = decision.table[1].excluded_by
    assert violation.limit == limit
    assert (violation.value is None) == (better.keys() != {"memory_gib"})


def test_ties_go_to_fewer_threads() -> None:
    assert decided(candidate(threads=4), candidate(threads=2)).placement.threads == 2


class TestInfeasible:
    def test_the_nearest_candidate_comes_first_with_what_it_misses_and_what_would_do(self) -> None:
        error = refused(SLOW_FRUGAL, FAST_HUNGRY, MIDDLE, max_hours=0.8, max_kwh=0.05)
        assert [row.candidate.placement.batch_size for row in error.table] == [512, 64, 4096]
        missed = [[(one.limit, round(one.excess, 9)) for one in row.excluded_by] for row in error.table]
        assert missed == [[("time", 0.25), ("energy", 1.0)], [("time", 1.5)], [("energy", 3.0)]]
        assert [one.bounds for one in error.relaxations] == [
            {"--max-hours": 1, "--max-kwh": pytest.approx(0.1)},
            {"--max-hours": 2},
            {"--max-kwh": pytest.approx(0.2)},
        ]

    def test_memory_of_the_machine_cannot_be_relaxed(self) -> None:
        error = refused(candidate(memory_gib=32))
        assert error.relaxations == ()
        assert [(one.limit, one.option, one.excess) for one in error.table[0].excluded_by] == [
            ("memory of cpu", None, 1.0)
        ]


class TestWhereToRent:
    """Three machines with known times and prices: A takes 1 h at 1 an hour, B 0.5 h at 3, C 20 min at 9."""

    OPTIONS = tuple(
        candidate(batch, seconds=seconds / 10, price=price)
        for batch, seconds, price in ((1, 3600, 1.0), (2, 1800, 3.0), (3, 1200, 9.0))
    )

    @pytest.mark.parametrize(("minutes", "batch_size", "cost"), [(60, 1, 1.0), (40, 2, 1.5), (25, 3, 3.0)])
    def test_the_cheapest_that_is_fast_enough(self, minutes: float, batch_size: int, cost: float) -> None:
        decision = decided(*self.OPTIONS, objective="cost", max_hours=minutes / 60)
        assert decision.placement.batch_size == batch_size
        assert decision.cost == pytest.approx(cost)
        assert decision.binds == (None if minutes == 60 else "time")

    def test_when_none_is_fast_enough_the_fastest_and_its_shortfall_are_named(self) -> None:
        error = refused(*self.OPTIONS, objective="cost", max_hours=0.25)
        assert error.fastest.candidate.placement.batch_size == 3
        assert error.shortfall_seconds == pytest.approx(300)
        assert [relaxation.bounds for relaxation in error.relaxations] == [{"--max-hours": pytest.approx(0.334)}]

    def test_all_three_are_on_the_front_of_time_and_cost(self) -> None:
        assert [row.on_front for row in decided(*self.OPTIONS).table] == [True, True, True]

    def test_a_limit_on_the_price_per_hour_and_weights_in_percent(self) -> None:
        # From A to B time falls to a half and cost rises by a half: worth it at equal weights, not at one to two.
        for objective, batch_size in {"time": 2, "time=1,cost=1": 2, "time=1,cost=2": 1}.items():
            decision = decided(*self.OPTIONS, objective=objective, max_cost_per_hour=3)
            assert decision.placement.batch_size == batch_size

    def test_started_hours_are_charged_in_full(self) -> None:
        decision = decide(self.OPTIONS, Terms.of(Limits(), "cost", TEN_EPOCHS, billing=Billing.HOUR))
        assert [row.cost for row in decision.table] == [1.0, 3.0, 9.0]


UNSURE = candidate(512, interval=(0.5, 2.0))
SURE = candidate(64, seconds=400, interval=(0.95, 1.05))


def test_a_limit_is_judged_by_the_likeliest_figure_unless_confidence_is_asked_for() -> None:
    for confidence, chosen in ((0.5, 512), (0.9, 64)):
        assert decided(UNSURE, SURE, max_hours=1.2, confidence=confidence).placement.batch_size == chosen
    (missed,) = decided(UNSURE, SURE, max_hours=1.2, confidence=0.95).table[1].excluded_by
    assert (missed.limit, missed.confidence, missed.value, missed.bound) == ("time", 0.95, pytest.approx(2), 1.2)


def test_past_runs_exclude_what_is_unlikely_to_be_good_enough() -> None:
    fast = candidate(4096, seconds=10, quality_probability=0.2)
    decision = decided(fast, candidate(512, quality_probability=0.8), min_auc=0.75)
    assert decision.placement.batch_size == 512
    assert decision.binds == "probability of AUC 0.75"
    (missed,) = decision.table[1].excluded_by
    assert (missed.value, missed.bound, missed.at_least) == (0.2, 0.5, True)


def test_unknown_quality_excludes_nothing() -> None:
    assert decided(MIDDLE, min_auc=0.75, min_auc_probability=0.99).feasible == 1


def test_texts_of_decisions_are_those_that_are_recorded() -> None:
    """Wording stands here alone; `GOLDEN_RECORD=1` records it anew."""
    fast = candidate(4096, seconds=10, quality_probability=0.2)
    decisions = {
        "plain": decided(MIDDLE, SLOW_FRUGAL),
        "binding limit": decided(MIDDLE, SLOW_FRUGAL, FAST_HUNGRY, max_kwh=0.15),
        "likeliest figure": decided(MIDDLE, SLOW_FRUGAL, objective="energy", max_hours=1),
        "confidence": decided(UNSURE, SURE, max_hours=1.2, confidence=0.95),
        "within what steps vary": decided(UNSURE, SURE),
        "beyond what steps vary": decided(candidate(512, interval=(0.95, 1.05)), SURE),
        "probable quality": decided(fast, candidate(512, quality_probability=0.8), min_auc=0.75),
        "unknown quality": decided(MIDDLE, min_auc=0.75, min_auc_probability=0.99),
        "unknown energy": decided(candidate(joules=None)),
        "out of memory": decided(candidate(8192, seconds=1, out_of_memory=True), MIDDLE),
    }
    errors = {
        "both limits": refused(SLOW_FRUGAL, FAST_HUNGRY, MIDDLE, max_hours=0.8, max_kwh=0.05),
        "by a hair": refused(candidate(seconds=360.0001), max_hours=1),
        "memory of the machine": refused(candidate(memory_gib=32)),
        "nearest of many": refused(*(candidate(1 << power) for power in range(10)), max_hours=0.1),
    }
    texts: dict[str, list[str]] = {name: [str(error)] for name, error in errors.items()}
    for name, one in decisions.items():
        excluded = [str(row["lost_because"]) for row in one.table_rows() if row["lost_because"]]
        texts[name] = [one.reason, one.explanation, *excluded]
        assert "\n" not in "".join(texts[name])
    recorded = Path(__file__).with_name("decision_texts.json")
    if os.environ.get("GOLDEN_RECORD"):
        recorded.write_text(json.dumps(texts, indent=2) + "\n")
    assert texts == json.loads(recorded.read_text())


def test_table_rows_carry_units_and_origin() -> None:
    sure = candidate(512, interval=(0.9, 1.2))
    rows = decided(sure, SLOW_FRUGAL, max_hours=1).table_rows()
    assert rows[0] == {
        "rank": 1,
        "placement": "cpu x1 fp32 b512",
        "accelerator": "cpu",
        "is_here": True,
        "threads": 1,
        "precision": "fp32",
        "batch_size": 512,
        "machines": 1,
        "step_milliseconds": 10.0,
        "step_source": "measured",
        "samples_per_second": 1.0,
        "hours": 1.0,
        "hours_low": 0.9,
        "hours_high": 1.2,
        "time_level": None,
        "kwh": 0.1,
        "kwh_low": 0.09,
        "kwh_high": 0.12,
        "energy_level": None,
        "energy_source": "estimated",
        "watts": 100.0,
        "cost": 1.0,
        "cost_low": 0.9,
        "cost_high": 1.2,
        "carbon_grams": None,
        "price_source": "given",
        "memory_gib": 1.0,
        "memory_gib_low": None,
        "memory_gib_high": None,
        "memory_level": None,
        "memory_source": "estimated",
        "work_share": 1.0,
        "quality_probability": None,
        "on_pareto_front": True,
        "excluded_by": None,
        "lost_because": None,
    }
    assert rows[1]["excluded_by"] == rows[1]["lost_because"] == "time 2 h over the limit of 1 h by 100 %"
    assert (rows[1]["hours_low"], rows[1]["on_pareto_front"]) == (None, False)


def test_the_table_for_people_has_eight_columns_with_units_and_the_reason_third() -> None:
    rows = decided(candidate(512), SLOW_FRUGAL, max_hours=1).shown_rows()
    assert [*rows[0]] == ["placement", "outcome", "why", "time", "energy", "cost", "memory", "where"]
    assert rows[0] == {
        "placement": "cpu x1 fp32 b512",
        "outcome": "chosen",
        "why": "least time within the limits",
        "time": "60 min (measured)",
        "energy": "0.1 kWh (estimated)",
        "cost": "1 (given)",
        "memory": "1 GiB (estimated)",
        "where": "this machine",
    }
    assert (rows[1]["outcome"], rows[1]["why"]) == ("excluded", "time 2 h over the limit of 1 h by 100 %")


candidates_strategy = st.lists(
    st.builds(
        candidate,
        st.integers(1, 8192),
        seconds=st.floats(0.1, 1e5),
        joules=st.none() | st.floats(0.1, 1e7),
        memory_gib=st.floats(0.01, 64),
        threads=st.integers(1, 64),
        out_of_memory=st.booleans(),
    ),
    min_size=1,
    max_size=20,
)
limit = st.none() | st.floats(0.001, 100)
limits_strategy = st.builds(Limits, max_hours=limit, max_kwh=limit, max_cost=limit, max_memory_gib=limit)


def totals(candidate: Candidate) -> dict[str, float]:
    """Figures of ten epochs at one unit of money per hour, reckoned apart from the code under test."""
    hours = candidate.prediction.epoch_seconds * 10 / 3600
    joules = candidate.prediction.epoch_joules
    return {
        "time": hours,
        "energy": math.inf if joules is None else joules * 10 / 3.6e6,
        "cost": hours,
        "carbon": math.inf if joules is None else joules * 10 / 3.6e6 * 400,
        "memory": candidate.prediction.memory_bytes / 2**30,
    }


def keeps(candidate: Candidate, limits: Limits) -> bool:
    total, bounds = totals(candidate), limits
    within = [
        bounds.max_hours is None or total["time"] <= bounds.max_hours,
        bounds.max_kwh is None or total["energy"] <= bounds.max_kwh,
        bounds.max_cost is None or total["cost"] <= bounds.max_cost,
        bounds.max_memory_gib is None or total["memory"] <= bounds.max_memory_gib,
        candidate.prediction.memory_bytes <= candidate.accelerator_memory_bytes,
        not candidate.out_of_memory,
    ]
    return all(within)


@given(candidates_strategy, limits_strategy, st.sampled_from(Objective))
def test_the_chosen_one_is_feasible_and_no_feasible_one_is_better(
    candidates: list[Candidate], limits: Limits, objective: Objective
) -> None:
    feasible = [
        candidate
        for candidate in candidates
        if keeps(candidate, limits) and math.isfinite(totals(candidate)[objective.value])
    ]
    try:
        decision = decide(candidates, Terms.of(limits, objective, TEN_EPOCHS, grid=GRID))
    except InfeasibleError:
        assert not feasible
        return
    best = min(totals(candidate)[objective.value] for candidate in feasible)
    chosen = decision.table[0]
    assert keeps(chosen.candidate, limits)
    assert totals(chosen.candidate)[objective.value] == pytest.approx(best)
    assert len(decision.table) == len(candidates), "every candidate is in the table"
    for row in decision.table:
        allowed = keeps(row.candidate, limits) and math.isfinite(totals(row.candidate)[objective.value])
        assert bool(row.excluded_by) is not allowed, "excluded if and only if a named limit is broken"
    assert Decision.model_validate_json(decision.model_dump_json()) == decision


@given(st.permutations([SLOW_FRUGAL, FAST_HUNGRY, MIDDLE]), st.sampled_from(Objective))
def test_the_order_of_candidates_does_not_matter(candidates: list[Candidate], objective: Objective) -> None:
    terms = Terms.of(Limits(), objective, TEN_EPOCHS, grid=GRID)
    assert decide(candidates, terms) == decide([MIDDLE, SLOW_FRUGAL, FAST_HUNGRY], terms)
