"""Power learned from measured trainings: near to them it is theirs, far from them the profile's."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.hardware.cost.learned_power import LearnedPower, MeasuredLoad, TrainingLoad, load_of, with_learned_joules
from shunter.hardware.cost.power_model import PowerModel
from shunter.hardware.types import HardwareProfile, Placement, Prediction, Quantity
from tests.hardware.profiles import make_profile, make_workload


def gpu() -> HardwareProfile:
    """A device of 20 W at rest and 300 W at work, by its data sheet."""
    return make_profile(
        name="cuda:0",
        idle_watts=Quantity(value=20, source="estimated"),
        busy_watts=Quantity(value=300, source="catalogue"),
    )


def at(batch_size: int, limit: float | None = None, workload: str = "ours", rate: float = 1.0) -> TrainingLoad:
    return TrainingLoad(
        busy_cores=1, workload=workload, batch_size=batch_size, samples_per_second=1000 * rate, limit_watts=limit
    )


def measured(load: TrainingLoad, watts: float) -> MeasuredLoad:
    return MeasuredLoad(watts=watts, **dict(load))


def test_without_measurements_the_two_points_of_the_profile_remain() -> None:
    profile = gpu()
    line = PowerModel.of(profile)
    assert line is not None
    power = LearnedPower.fit(profile)
    assert power.watts(at(128)) == pytest.approx(line.watts(1)) == pytest.approx(300)
    assert power.watts(at(128, limit=150)) == 150, "no device draws more than its limit"
    assert (power.measurements, power.leave_one_out_error()) == (0, None)
    assert LearnedPower.fit(make_profile(idle_watts=None)).watts(at(128)) is None


def test_a_measured_training_sets_its_neighbours_right_and_teaches_others_less() -> None:
    power = LearnedPower.fit(gpu(), [measured(at(512), 120.0)])
    here, near, far, other = (power.watts(load) for load in (at(512), at(1024), at(65_536), at(512, workload="new")))
    assert here is not None
    assert near is not None
    assert far is not None
    assert other is not None
    assert here == pytest.approx(120, rel=0.1)
    assert abs(near / 120 - 1) < abs(far / 120 - 1)
    assert 120 < other < 300, "the device draws less than its design power for any training, as far as one can tell"


def test_the_trend_over_batch_sizes_is_followed_where_the_two_points_know_of_none() -> None:
    true = {2**power: 100.0 + 10 * power for power in range(6, 14)}
    profile = gpu()
    for left_out in (256, 1024, 4096):
        known = [measured(at(size), watts) for size, watts in true.items() if size != left_out]
        watts = LearnedPower.fit(profile, known).watts(at(left_out))
        assert watts is not None
        assert watts == pytest.approx(true[left_out], rel=0.05)
        two_points = LearnedPower.fit(profile).watts(at(left_out))
        assert two_points is not None
        assert abs(two_points / true[left_out] - 1) > 0.3


def test_the_error_by_leaving_one_out_is_that_of_leaving_each_out_in_turn() -> None:
    loads = [measured(at(2**power), 150 + 20 * (power % 3)) for power in range(6, 12)]  # too few for another line
    profile = gpu()
    errors = []
    for index, load in enumerate(loads):
        watts = LearnedPower.fit(profile, [*loads[:index], *loads[index + 1 :]]).watts(load)
        assert watts is not None
        errors.append(abs(watts / load.watts - 1))
    middle = sorted(errors)[2:4]
    assert LearnedPower.fit(profile, loads).leave_one_out_error() == pytest.approx(sum(middle) / 2, rel=1e-6)


@given(
    st.lists(
        st.tuples(st.integers(0, 14), st.floats(10, 600), st.sampled_from([None, 100.0, 250.0])),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_was_measured_the_power_is_a_positive_number(rows: list[tuple[int, float, float | None]]) -> None:
    power = LearnedPower.fit(gpu(), [measured(at(2**size, limit), watts) for size, watts, limit in rows])
    for size in (1, 64, 2**20):
        watts = power.watts(at(size))
        assert watts is not None
        assert math.isfinite(watts)
        assert watts > 0


def test_a_load_follows_from_the_workload_and_the_step() -> None:
    workload, profile = make_workload(), make_profile()
    placement = Placement(accelerator="cpu", threads=2, precision="fp32", batch_size=100)
    load = load_of(workload, placement, profile, 0.5)
    assert load.samples_per_second == 200
    assert load.flops_per_second == pytest.approx(200 * workload.matmul_flops_per_sample)
    assert load.busy_cores == 2
    assert load.workload == load_of(workload, placement.model_copy(update={"threads": 4}), profile, 1.0).workload


def test_a_measured_energy_stays_as_it_was_measured() -> None:
    power = LearnedPower.fit(gpu(), [measured(at(512), 120.0)])
    prediction = Prediction(
        step_seconds=1,
        epoch_seconds=10,
        epoch_joules=777,
        memory_bytes=1,
        samples_per_second=1,
        step_seconds_source="measured",
        energy_source="measured",
    )
    assert with_learned_joules(prediction, at(512), power) == prediction
    estimated = with_learned_joules(prediction.model_copy(update={"energy_source": "estimated"}), at(512), power)
    assert estimated.epoch_joules == pytest.approx(10 * (power.watts(at(512)) or 0))
    assert estimated.energy_source == "estimated"
