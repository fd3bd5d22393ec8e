"""The choice as tables: candidates with figures in, the placement and its reason out."""

import math
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
def test_choice(limits: dict[str, float], objective: str, chosen: Candidate, binds: str | None) -> None:
    candidates = [SLOW_FRUGAL, FAST_HUNGRY, MIDDLE]
    decision = decide(candidates, Terms.of(Limits(**limits), Objective(objective), TEN_EPOCHS))
    assert decision.placement == chosen.placement
    assert decision.binds == binds
    assert [row.rank for row in decision.table] == [1, 2, 3]


def test_totals_are_those_of_the_whole_job() -> None:
    job = JobSize(tuning_epochs=6, final_epochs=4, evaluation_share=0.1)
    decision = decide([candidate(price=2.0)], Terms.of(Limits(), Objective.TIME, job))
    assert decision.hours == pytest.approx(1.1)
    assert decision.kwh == pytest.approx(0.11)
    assert decision.cost == pytest.approx(2.2)
    assert decision.memory_gib == 1.0


def test_a_search_by_its_own_budget_takes_it_wherever_it_runs() -> None:
    minutes = JobSize(tuning_epochs=0, final_epochs=4, evaluation_share=0.0, tuning_seconds=1_800)
    decision = decide([MIDDLE], Terms.of(Limits(), Objective.TIME, minutes))
    assert decision.hours == pytest.approx(4 * 0.1 + 0.5)
    assert decision.kwh == pytest.approx(4 * 0.01 + 0.05)
    energy = minutes.model_copy(update={"tuning_joules": 36_000.0})  # 100 W, so six of the thirty minutes
    decision = decide([MIDDLE], Terms.of(Limits(), Objective.TIME, energy))
    assert decision.hours == pytest.approx(4 * 0.1 + 0.1)
    unknown = candidate(joules=None)
    decision = decide([unknown], Terms.of(Limits(), Objective.TIME, energy))
    assert decision.hours == pytest.approx(4 * 0.1 + 0.5)
    assert decision.kwh is None


def test_a_candidate_that_does_not_fit_its_accelerator_is_excluded_without_any_limit() -> None:
    too_large = candidate(8192, seconds=1, memory_gib=20)
    decision = decide([too_large, MIDDLE], Terms.of(Limits(), Objective.TIME, TEN_EPOCHS))
    assert decision.placement == MIDDLE.placement
    assert decision.binds == "memory of cpu"


def test_a_probe_that_ran_out_of_memory_excludes() -> None:
    decision = decide(
        [candidate(8192, seconds=1, out_of_memory=True), MIDDLE], Terms.of(Limits(), Objective.TIME, TEN_EPOCHS)
    )
    assert decision.placement == MIDDLE.placement
    assert "memory of cpu exhausted when it was tried" in str(decision.table_rows()[1]["excluded_by"])


@pytest.mark.parametrize(("limits", "objective"), [({"max_kwh": 9}, "time"), ({}, "energy")])
def test_unknown_energy_neither_keeps_a_limit_nor_wins(limits: dict[str, float], objective: str) -> None:
    unknown = candidate(64, seconds=1, joules=None)
    decision = decide([unknown, MIDDLE], Terms.of(Limits(**limits), Objective(objective), TEN_EPOCHS))
    assert decision.placement == MIDDLE.placement
    assert "energy unknown" in str(decision.table_rows()[1]["excluded_by"])


def test_unknown_energy_is_shown_as_unknown_where_it_does_not_matter() -> None:
    decision = decide([candidate(joules=None)], Terms.of(Limits(), Objective.TIME, TEN_EPOCHS))
    assert decision.kwh is None
    assert decision.table_rows()[0]["kwh"] is None
    assert "an unknown energy" in decision.reason


def test_ties_go_to_fewer_threads() -> None:
    decision = decide([candidate(threads=4), candidate(threads=2)], Terms.of(Limits(), Objective.TIME, TEN_EPOCHS))
    assert decision.placement.threads == 2


class TestInfeasible:
    def message(self, candidates: list[Candidate], **limits: float) -> str:
        with pytest.raises(InfeasibleError) as raised:
            decide(candidates, Terms.of(Limits(**limits), Objective.TIME, TEN_EPOCHS))
        return str(raised.value)

    def test_nearest_candidates_are_named_with_what_each_misses(self) -> None:
        message = self.message([SLOW_FRUGAL, FAST_HUNGRY, MIDDLE], max_hours=0.8, max_kwh=0.05)
        near, further = "cpu x1 fp32 b512", "cpu x1 fp32 b4096"
        assert (
            f"{near} (time 1 h over the limit of 0.8 h by 25 %, energy 0.1 kWh over the limit of 0.05 kWh by 100 %)"
            in message
        )
        assert message.index("cpu x1 fp32 b64 (time 2 h") > message.index(near)
        assert f"{further} (energy 0.2 kWh over the limit of 0.05 kWh by 300 %)" in message
        assert (
            f"relax --max-hours 1 --max-kwh 0.1 (for {near}) or --max-hours 2 (for cpu x1 fp32 b64) "
            f"or --max-kwh 0.2 (for {further}), or relax a limit." in message
        )
        assert message.count(". ") == 0, "one sentence"

    def test_a_limit_missed_by_a_hair_is_not_said_to_be_missed_by_nothing(self) -> None:
        assert "by 0.1 %" in self.message([candidate(seconds=360.0001)], max_hours=1)

    def test_memory_of_the_machine_cannot_be_relaxed(self) -> None:
        message = self.message([candidate(memory_gib=32)])
        assert "memory of cpu 32 GiB over the limit of 16 GiB by 100 %" in message
        assert "use a machine with more memory" in message

    def test_only_the_nearest_are_listed(self) -> None:
        message = self.message([candidate(1 << power) for power in range(10)], max_hours=0.1)
        assert message.startswith("None of 10 placements keeps the limits")
        assert message.count("over the limit") == 3


class TestWhereToRent:
    """Three machines with known times and prices: A takes 1 h at 1 an hour, B 0.5 h at 3, C 20 min at 9."""

    OPTIONS = tuple(
        candidate(batch, seconds=seconds / 10, price=price)
        for batch, seconds, price in ((1, 3600, 1.0), (2, 1800, 3.0), (3, 1200, 9.0))
    )

    @pytest.mark.parametrize(("minutes", "batch_size", "cost"), [(60, 1, 1.0), (40, 2, 1.5), (25, 3, 3.0)])
    def test_the_cheapest_that_is_fast_enough(self, minutes: float, batch_size: int, cost: float) -> None:
        decision = decide(self.OPTIONS, Terms.of(Limits(max_hours=minutes / 60), "cost", TEN_EPOCHS))
        assert decision.placement.batch_size == batch_size
        assert decision.cost == pytest.approx(cost)
        assert decision.binds == (None if minutes == 60 else "time")

    def test_when_none_is_fast_enough_the_fastest_and_its_shortfall_are_named(self) -> None:
        with pytest.raises(NoFeasiblePlacementError) as raised:
            decide(self.OPTIONS, Terms.of(Limits(max_hours=0.25), "cost", TEN_EPOCHS))
        assert raised.value.fastest.candidate.placement.batch_size == 3
        assert raised.value.shortfall_seconds == pytest.approx(300)
        assert [relaxation.bounds for relaxation in raised.value.relaxations] == [{"--max-hours": pytest.approx(0.334)}]

    def test_all_three_are_on_the_front_of_time_and_cost(self) -> None:
        decision = decide(self.OPTIONS, Terms.of(Limits(), "time", TEN_EPOCHS))
        assert [row.on_front for row in decision.table] == [True, True, True]

    def test_a_limit_on_the_price_per_hour_and_weights_in_percent(self) -> None:
        dear = Limits(max_cost_per_hour=3)
        assert decide(self.OPTIONS, Terms.of(dear, "time", TEN_EPOCHS)).placement.batch_size == 2
        # From A to B time falls to a half and cost rises by a half: worth it at equal weights, not at one to two.
        assert decide(self.OPTIONS, Terms.of(dear, "time=1,cost=1", TEN_EPOCHS)).placement.batch_size == 2
        assert decide(self.OPTIONS, Terms.of(dear, "time=1,cost=2", TEN_EPOCHS)).placement.batch_size == 1

    def test_started_hours_are_charged_in_full(self) -> None:
        decision = decide(self.OPTIONS, Terms.of(Limits(), "cost", TEN_EPOCHS, billing=Billing.HOUR))
        assert [row.cost for row in decision.table] == [1.0, 3.0, 9.0]


class TestUncertainty:
    UNSURE = candidate(512, interval=(0.5, 2.0))
    SURE = candidate(64, seconds=400, interval=(0.95, 1.05))

    def test_a_limit_is_judged_by_the_likeliest_figure_unless_confidence_is_asked_for(self) -> None:
        for confidence, chosen in ((0.5, 512), (0.9, 64)):
            limits = Limits(max_hours=1.2, confidence=confidence)
            assert decide([self.UNSURE, self.SURE], Terms.of(limits, "time", TEN_EPOCHS)).placement.batch_size == chosen

    def test_the_missed_confidence_is_said(self) -> None:
        decision = decide(
            [self.UNSURE, self.SURE], Terms.of(Limits(max_hours=1.2, confidence=0.95), "time", TEN_EPOCHS)
        )
        assert decision.table_rows()[1]["lost_because"] == (
            "time 2 h at 0.95 confidence over the limit of 1.2 h by 67 %"
        )

    def test_the_explanation_compares_the_difference_with_what_the_steps_vary(self) -> None:
        text = decide([self.UNSURE, self.SURE], Terms.of(Limits(), "time", TEN_EPOCHS)).explanation
        assert "60 min, 30 to 120 min unpromised (step measured)" in text
        assert "that is within what their steps vary, so their order may turn out otherwise" in text
        steady = candidate(512, interval=(0.95, 1.05))
        text = decide([steady, self.SURE], Terms.of(Limits(), "time", TEN_EPOCHS)).explanation
        assert "that is beyond what their steps vary" in text

    def test_without_a_record_a_limit_is_kept_by_the_likeliest_figure(self) -> None:
        text = decide([MIDDLE, SLOW_FRUGAL], Terms.of(Limits(max_hours=1), "energy", TEN_EPOCHS)).explanation
        assert "that on time by the likeliest figure" in text


class TestQuality:
    def test_past_runs_exclude_what_is_unlikely_to_be_good_enough(self) -> None:
        fast = candidate(4096, seconds=10, quality_probability=0.2)
        good = candidate(512, quality_probability=0.8)
        decision = decide([fast, good], Terms.of(Limits(min_auc=0.75), "time", TEN_EPOCHS))
        assert decision.placement.batch_size == 512
        assert decision.binds == "probability of AUC 0.75"
        assert "probability of AUC 0.75 0.2 below the least of 0.5" in str(decision.table_rows()[1]["lost_because"])
        assert "it reaches AUC 0.75 with probability 80%" in decision.explanation

    def test_unknown_quality_excludes_nothing_and_is_said(self) -> None:
        decision = decide([MIDDLE], Terms.of(Limits(min_auc=0.75, min_auc_probability=0.99), "time", TEN_EPOCHS))
        assert "Whether it reaches AUC 0.75 is unknown" in decision.explanation


class TestReason:
    def test_it_is_one_sentence_that_names_the_figures_and_their_origin(self) -> None:
        reason = decide([MIDDLE, SLOW_FRUGAL], Terms.of(Limits(), Objective.TIME, TEN_EPOCHS)).reason
        assert reason == (
            "cpu x1 fp32 b512 needs the least time of 2 placement(s) (cpu x1 fp32 b64 needs 100.0% more): "
            "60 min (step measured) and 0.1 kWh (power estimated) for at most 10 epochs; no limit binds."
        )

    def test_quality_is_left_to_the_check_after_training(self) -> None:
        reason = decide([MIDDLE], Terms.of(Limits(min_auc=0.7), Objective.TIME, TEN_EPOCHS)).reason
        assert "the least AUC of 0.7 is checked after training" in reason

    def test_the_binding_limit_is_named(self) -> None:
        reason = decide([MIDDLE, FAST_HUNGRY], Terms.of(Limits(max_kwh=0.15), Objective.TIME, TEN_EPOCHS)).reason
        assert "of 1 placement(s) that keep the limits (of 2)" in reason
        assert "without the limit on energy another would have won" in reason


def test_table_rows_carry_units_and_origin() -> None:
    sure = candidate(512, interval=(0.9, 1.2))
    rows = decide([sure, SLOW_FRUGAL], Terms.of(Limits(max_hours=1), Objective.TIME, TEN_EPOCHS)).table_rows()
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
    rows = decide([candidate(512), SLOW_FRUGAL], Terms.of(Limits(max_hours=1), Objective.TIME, TEN_EPOCHS)).shown_rows()
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


def test_the_explanation_is_one_paragraph_on_what_it_beats_what_binds_and_what_would_change_it() -> None:
    free = decide([MIDDLE, SLOW_FRUGAL, FAST_HUNGRY], Terms.of(Limits(), "time", TEN_EPOCHS)).explanation
    assert "The next, cpu x1 fp32 b512, needs 100.0% more" in free
    assert "No limit binds" in free
    assert "it would change if this one needed 100.0% more than expected" in free
    bound = decide([MIDDLE, SLOW_FRUGAL, FAST_HUNGRY], Terms.of(Limits(max_kwh=0.15), "time", TEN_EPOCHS)).explanation
    assert "needs the least time of the 2 of 3 placements within the limits: 60 min" in bound
    assert (
        "What binds: cpu x1 fp32 b4096 would need 50.0% less time, but is excluded (energy 0.2 kWh over the limit of "
        "0.15 kWh by 34 %)" in bound
    )
    assert "\n" not in free + bound
