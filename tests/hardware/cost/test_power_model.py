"""Watts fitted to samples: exact where the samples are, never negative, and honest about their source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import HardwareError
from shunter.hardware.cost.power_model import PowerModel, PowerSample, busy_cores
from shunter.hardware.types import Placement
from tests.hardware.profiles import make_profile


def sample(watts: float, cores: float, flops: float = 0.0, traffic: float = 0.0) -> PowerSample:
    return PowerSample(
        watts=watts, busy_cores=cores, flops_per_second=flops, bytes_per_second=traffic, source="measured"
    )


def test_the_coefficients_behind_exact_samples_are_found() -> None:
    loads = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (2, 100e9, 0), (2, 50e9, 10e9), (1, 0, 20e9), (4, 200e9, 5e9)]
    samples = [
        sample(20 + 5 * cores + 1e-10 * flops + 2e-10 * traffic, cores, flops, traffic)
        for cores, flops, traffic in loads
    ]
    model = PowerModel.fit(samples)
    found = (model.idle_watts, model.watts_per_core, model.joules_per_flop, model.joules_per_byte)
    assert found == pytest.approx((20, 5, 1e-10, 2e-10))
    assert model.deviation_watts == pytest.approx(0, abs=1e-6)
    assert model.watts(3, 1e11, 1e10) == pytest.approx(20 + 15 + 10 + 2)
    assert model.source == "measured"


@given(st.lists(st.tuples(st.floats(1, 500), st.floats(0, 64)), min_size=2, max_size=20))
def test_no_coefficient_is_negative_and_more_work_never_takes_less_power(pairs: list[tuple[float, float]]) -> None:
    samples = [sample(watts, cores) for watts, cores in pairs]
    if len({sample.busy_cores for sample in samples}) < 2:
        with pytest.raises(HardwareError, match="at two different loads"):
            PowerModel.fit(samples)
        return
    model = PowerModel.fit(samples)
    assert min(model.idle_watts, model.watts_per_core, model.joules_per_flop, model.joules_per_byte) >= 0
    assert model.watts(2) >= model.watts(1) >= model.idle_watts


def test_a_profile_with_an_estimated_end_makes_an_estimated_model() -> None:
    profile = make_profile()
    model = PowerModel.of(profile)
    assert model is not None
    assert (model.watts(0), model.watts(4), model.source) == (pytest.approx(10), pytest.approx(30), "measured")
    assert profile.busy_watts is not None
    mixed = make_profile(busy_watts=profile.busy_watts.model_copy(update={"source": "estimated"}))
    model = PowerModel.of(mixed)
    assert model is not None
    assert model.source == "estimated"
    assert PowerModel.of(make_profile(idle_watts=None)) is None


@pytest.mark.parametrize(("accelerator", "threads", "cores"), [("cpu", 3, 3.0), ("cpu", 9, 4.0), ("cuda:0", 1, 1.0)])
def test_busy_cores(accelerator: str, threads: int, cores: float) -> None:
    placement = Placement(accelerator=accelerator, threads=threads, precision="fp32", batch_size=1)
    assert busy_cores(placement, make_profile(name=accelerator)) == cores
