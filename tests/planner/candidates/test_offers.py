"""What can be chosen beside this machine, and limits that nothing can keep."""

import datetime

import pytest

from shunter.errors import RequestError
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.types import Quantity
from shunter.planner.assessment import Candidate
from shunter.planner.candidates.offers import catalogue_offers, check_limits, local_offers
from shunter.planner.decide import decide
from shunter.planner.explain.elsewhere import better_elsewhere, clearly_better
from shunter.planner.job_size import JobSize
from shunter.planner.predict.predicted import COUNTS, offer_placements, predicted_candidates
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms
from shunter.requests import Limits, SelectRequest, TrainRequest, Weights
from tests.hardware.profiles import make_profile, make_workload

JOB = JobSize(tuning_epochs=6, final_epochs=4, evaluation_share=0)
LEAST_TIME = Terms(limits=Limits(), weights=Weights.parse("time"), job=JOB)
LOCAL = [make_profile(cores=2)]


def named(asked: str) -> list[str]:
    return [offer.name for offer in catalogue_offers(asked, LOCAL)]


def test_all_are_those_of_the_catalogue_that_are_not_here() -> None:
    everything = [row for row in load_catalogue().accelerators if row.kind in ("gpu", "cpu") and row.tried]
    assert {row.vendor for row in everything if row.kind == "gpu"} == {"NVIDIA"}
    assert named("all") == [row.name for row in everything]
    gpu = make_profile(name="cuda:0")
    mine = gpu.model_copy(update={"accelerator": gpu.accelerator.model_copy(update={"model": "Tesla V100-SXM2-16GB"})})
    found = {offer.name for offer in catalogue_offers("all", [*LOCAL, mine])}
    assert {row.name for row in everything} - found == {"NVIDIA Tesla V100 SXM2 16GB"}


def test_names_are_found_however_they_are_written_and_once() -> None:
    assert named("h100 sxm5 80gb, NVIDIA H100 SXM5 80GB,k80") == ["NVIDIA H100 SXM5 80GB", "NVIDIA Tesla K80"]
    assert named("local") == []


def test_an_unknown_name_is_one_sentence_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="'H1000'"):
        catalogue_offers("H1000", LOCAL)


def test_what_is_not_trained_on_yet_is_compared_when_it_is_named_and_says_so() -> None:
    (tpu,) = catalogue_offers("TPU v5e", LOCAL)
    assert tpu.note == "Google TPU v5e is not a device on which Shunter can train"


def test_prices_of_another_time_or_kind_are_not_compared() -> None:
    (old, new) = catalogue_offers("P100 PCIe, V100 SXM2 16GB", LOCAL)
    assert (old.price_per_hour, old.price_source, old.is_here) == (None, None, False)
    assert old.note is not None
    assert (new.price_per_hour, new.price_source) == (0.79, "catalogue")
    catalogue = load_catalogue()
    v100 = catalogue.find_accelerator("V100 SXM2 16GB")
    assert v100.model_copy(update={"price_includes_host": False}).comparable_price(datetime.date(2026, 11, 21)) is None


def test_an_untried_vendor_is_compared_when_it_is_named_and_says_so() -> None:
    (offer,) = catalogue_offers("MI355X", LOCAL)
    assert offer.note is not None
    assert "tried" in offer.note


def test_the_price_of_this_machine_is_the_users_else_the_profiles_else_unknown() -> None:
    priced = make_profile(price_per_hour=Quantity(value=0.5, source="catalogue"))
    found = [local_offers([profile], price)[0] for profile, price in ((priced, 2.0), (priced, None), (LOCAL[0], None))]
    assert [(offer.price_per_hour, offer.price_source) for offer in found] == [
        (2.0, "given"),
        (0.5, "catalogue"),
        (None, None),
    ]


def test_what_is_not_here_is_offered_whole_and_several_together() -> None:
    workload = make_workload(train_samples=80_000)
    (h100,) = catalogue_offers("H100 SXM5 80GB", LOCAL)
    assert {placement.processes for placement in offer_placements(workload, h100)} == set(COUNTS)
    candidates = predicted_candidates(workload, [h100])
    assert all(candidate.machines == candidate.placement.processes for candidate in candidates)
    row = next(row for row in rank(candidates, LEAST_TIME).table if row.candidate.machines == 8)
    assert row.cost == pytest.approx(8 * row.hours * (h100.price_per_hour or 0))
    (server,) = catalogue_offers(next(row.name for row in load_catalogue().accelerators if row.kind == "cpu"), LOCAL)
    assert {placement.threads for placement in offer_placements(workload, server)} == {server.profile.accelerator.cores}


def test_a_clearly_better_absent_one_is_one_sentence() -> None:
    workload = make_workload(train_samples=8_000_000)
    best = rank(predicted_candidates(workload, local_offers(LOCAL, None)), LEAST_TIME).table[0]
    absent = predicted_candidates(workload, catalogue_offers("H100 SXM5 80GB", LOCAL))
    (sentence,) = better_elsewhere(best, absent, LEAST_TIME)
    assert sentence.startswith("Not in this machine, NVIDIA H100 SXM5 80GB is expected from the catalogue to need ")
    assert "(step estimated)" in sentence
    assert better_elsewhere(rank(absent, LEAST_TIME).table[0], absent, LEAST_TIME) == []
    none_allowed = Terms(limits=Limits(max_hours=1e-9), weights=LEAST_TIME.weights, job=JOB)
    assert better_elsewhere(best, absent, none_allowed) == []


def test_a_small_saving_is_not_worth_a_move() -> None:
    """The whole command counts: what it takes beside its trainings, and the start on another machine."""
    best = rank(predicted_candidates(make_workload(train_samples=8_000_000), local_offers(LOCAL, None)), LEAST_TIME)
    absent = predicted_candidates(make_workload(train_samples=8_000_000), catalogue_offers("H100 SXM5 80GB", LOCAL))
    assert clearly_better(best.table[0], absent, LEAST_TIME) == absent
    beside = JOB.model_copy(update={"beside_seconds": 4 * 3600 * best.table[0].hours})
    assert clearly_better(best.table[0], absent, Terms(limits=Limits(), weights=LEAST_TIME.weights, job=beside)) == []
    tiny = make_workload(train_samples=200)
    leader = rank(predicted_candidates(tiny, local_offers(LOCAL, None)), LEAST_TIME).table[0]
    there = predicted_candidates(tiny, catalogue_offers("all", LOCAL))
    assert clearly_better(leader, there, LEAST_TIME) == []
    assert better_elsewhere(leader, there, LEAST_TIME) == []


def test_of_equals_elsewhere_the_cheapest_comes_first_then_the_least_watts() -> None:
    workload = make_workload(train_samples=8_000_000)
    (h200,) = catalogue_offers("H200", LOCAL)
    base = next(one for one in predicted_candidates(workload, [h200]) if one.placement.processes == 1)

    def candidate(name: str, seconds: float, price: float | None, joules: float = 1.0) -> Candidate:
        placement = base.placement.model_copy(update={"accelerator": name})
        prediction = base.prediction.model_copy(update={"epoch_seconds": seconds, "epoch_joules": joules * seconds})
        return base.model_copy(update={"placement": placement, "prediction": prediction, "price_per_hour": price})

    leader = rank(predicted_candidates(workload, local_offers(LOCAL, None)), LEAST_TIME).table[0]

    def kept(*few: Candidate) -> set[str]:
        return {one.placement.accelerator for one in clearly_better(leader, few, LEAST_TIME)}

    assert kept(candidate("fast", 10, 9), candidate("cheap", 10.4, 1), candidate("slow", 15, 0.1)) == {"cheap", "slow"}
    assert kept(candidate("fast", 10, None, 9), candidate("frugal", 10.4, None, 1)) == {"frugal"}


def test_where_an_absent_one_wins_the_explanation_tells_what_this_machine_can_do() -> None:
    workload = make_workload(train_samples=8_000_000)
    offers = [*local_offers(LOCAL, 0.2), *catalogue_offers("H100 SXM5 80GB", LOCAL)]
    decision = decide(predicted_candidates(workload, offers), Terms.of(Limits(), "time", JOB))
    assert not decision.chosen.candidate.is_here
    assert "which is not in this machine, needs the least time" in decision.explanation
    assert "In this machine cpu x2 bf16" in decision.explanation


class TestLimitsThatNothingCanKeep:
    def message(self, request: TrainRequest | SelectRequest) -> str:
        offers = [*local_offers(LOCAL, request.pricing.price_per_hour), *catalogue_offers("H100 SXM5 80GB, L4", LOCAL)]
        with pytest.raises(RequestError) as raised:
            check_limits(request, offers)
        return str(raised.value)

    def test_a_price_below_every_price(self) -> None:
        cheapest = catalogue_offers("L4", LOCAL)[0].price_per_hour
        assert self.message(SelectRequest(limits=Limits(max_cost_per_hour=0.01))) == (
            f"--max-cost-per-hour 0.01 is below the price of every accelerator; "
            f"the lowest is {cheapest:g} for NVIDIA L4: raise the limit."
        )

    def test_power_below_rest(self) -> None:
        assert self.message(SelectRequest(limits=Limits(max_watts=5))).startswith(
            "--max-watts 5 is below the idle power of every accelerator; the lowest is "
        )

    def test_cost_without_any_price(self) -> None:
        request = SelectRequest(objective="cost")
        with pytest.raises(RequestError, match="--objective"):
            check_limits(request, local_offers(LOCAL, None))

    def test_limits_that_something_can_keep_are_let_through(self) -> None:
        limits = Limits(max_watts=25, max_cost_per_hour=1.5)
        check_limits(
            SelectRequest(limits=limits), [*local_offers(LOCAL, 1.0), *catalogue_offers("H100 SXM5 80GB", LOCAL)]
        )
