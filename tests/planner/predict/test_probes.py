"""What is measured, and what past runs have measured already; the machine here is a line, not a device."""

from datetime import UTC, datetime, timedelta

from shunter.engine.probes.measurement import Measurement
from shunter.hardware.types import Placement
from shunter.planner.candidates.offers import local_offers
from shunter.planner.predict.observe import LONGEST_KNOWN, measured_before, probe_observations
from shunter.planner.predict.predicted import predicted_candidates
from shunter.planner.predict.probes import Probes
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms
from shunter.requests import Limits, Weights
from tests.hardware.profiles import make_profile, make_workload
from tests.planner.measurements import measurement
from tests.planner.test_decide import TEN_EPOCHS

WORKLOAD = make_workload(train_samples=80_000)
PROFILE = make_profile(cores=1)
TERMS = Terms(limits=Limits(), weights=Weights.parse("time"), job=TEN_EPOCHS)


def step_seconds(placement: Placement) -> float:
    """A millisecond, and two microseconds a sample."""
    return 1e-3 + 2e-6 * placement.batch_size


class Machine:
    """Answers probes, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[Placement] = []

    def __call__(self, placement: Placement, steps: int) -> Measurement:
        self.asked.append(placement)
        return measurement(step_seconds(placement), steps=steps, memory_bytes=2**20)


def probes(machine: Machine, known: dict[Placement, Measurement] | None = None, seconds: float = 600.0) -> Probes:
    candidates = predicted_candidates(WORKLOAD, local_offers([PROFILE], None))
    return Probes(candidates, WORKLOAD, TERMS, machine, seconds=seconds, known=known)


def test_what_a_past_run_measured_is_not_measured_again() -> None:
    first, second = Machine(), Machine()
    earlier = probes(first)
    earlier.measure_leaders()
    observations = probe_observations(earlier.newly_found(), WORKLOAD, [PROFILE])
    known = measured_before(WORKLOAD, observations, [PROFILE], datetime.now(UTC))
    assert set(known) == set(first.asked)
    later = probes(second, known)
    later.measure_leaders()
    assert second.asked == []
    assert later.newly_found() == {}
    assert {c.placement: c.prediction for c in later.candidates()} == {
        c.placement: c.prediction for c in earlier.candidates()
    }


def test_what_is_old_or_of_another_machine_or_training_is_measured_anew() -> None:
    earlier = probes(Machine())
    earlier.measure_leaders()
    observations = probe_observations(earlier.newly_found(), WORKLOAD, [PROFILE])
    now = datetime.now(UTC)
    later = now + LONGEST_KNOWN + timedelta(minutes=1)
    assert measured_before(WORKLOAD, observations, [PROFILE], later) == {}
    assert measured_before(WORKLOAD, observations, [PROFILE], now - timedelta(hours=1)) == {}
    other = PROFILE.model_copy(update={"machine": "another"})
    assert measured_before(WORKLOAD, observations, [other], now) == {}
    larger = WORKLOAD.model_copy(update={"matmul_flops_per_sample": 2 * WORKLOAD.matmul_flops_per_sample})
    assert measured_before(larger, observations, [PROFILE], now) == {}
    tomorrow = WORKLOAD.model_copy(update={"train_samples": WORKLOAD.train_samples + 1_000})
    assert measured_before(tomorrow, observations, [PROFILE], now) != {}


def test_a_job_that_recurs_measures_a_few_more_batch_sizes_each_time() -> None:
    machine = Machine()
    found = probes(machine)
    found.measure_leaders()
    before = len(machine.asked)
    found.measure_further(2)
    fresh = machine.asked[before:]
    assert len(fresh) == 2
    assert not set(fresh) & set(machine.asked[:before])
    assert len({(placement.accelerator, placement.threads, placement.precision) for placement in fresh}) == 1


def test_what_further_batch_sizes_take_is_a_share_of_the_job() -> None:
    machine = Machine()
    found = probes(machine)
    found.measure_leaders()
    before = len(machine.asked)
    leader = rank(found.candidates(), TERMS).table[0]
    found.measure_further(2, share=0.5 * step_seconds(leader.candidate.placement) / (3600 * leader.hours))
    assert len(machine.asked) == before, "half a step is not enough for any"
    found.measure_further(2, share=1e9)
    assert len(machine.asked) == before + 2


def test_best_known_batch_size_is_measured_on_each_accelerator() -> None:
    machine = Machine()
    found = probes(machine)
    found.measure_leaders()
    sizes = {placement.batch_size for placement in machine.asked}
    (fresh, *_) = (one.placement for one in found.candidates() if one.placement.batch_size not in sizes)
    found.measure_on_each([fresh.batch_size])
    asked = [placement for placement in machine.asked if placement.batch_size == fresh.batch_size]
    assert {placement.accelerator for placement in asked} == {one.placement.accelerator for one in found.candidates()}
    count = len(machine.asked)
    found.measure_on_each([fresh.batch_size])
    assert len(machine.asked) == count


def test_between_two_probes_a_step_lies_on_the_line() -> None:
    found = probes(Machine())
    found.measure_leaders()
    kinds = {(p.threads, p.precision): [] for p in found.found}
    for placement in found.found:
        kinds[placement.threads, placement.precision].append(placement.batch_size)
    between = [
        candidate
        for candidate in found.candidates()
        if candidate.prediction.step_seconds_source == "estimated"
        and min(sizes := kinds.get((candidate.placement.threads, candidate.placement.precision), [0]))
        < candidate.placement.batch_size
        < max(sizes)
    ]
    assert between
    for candidate in between:
        expected = step_seconds(candidate.placement)
        assert abs(candidate.prediction.step_seconds / expected - 1) < 1e-6


def test_without_time_nothing_is_measured() -> None:
    machine = Machine()
    found = probes(machine, seconds=0)
    found.measure_leaders()
    found.measure_further(2)
    assert not found.measure_candidate(found.candidates()[0])
    assert machine.asked == []
