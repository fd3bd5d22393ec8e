"""The measurements on this machine: real, short, and consistent with each other."""

from typing import Literal

import pytest
import torch

from shunter.errors import HardwareError
from shunter.hardware.devices.discovery import host_fingerprint, local_accelerators
from shunter.hardware.probes.accelerator import measure_profile
from shunter.hardware.probes.rates import (
    CURVE_BATCHES,
    CURVE_WIDTHS,
    EMULATED_SHARE,
    ROW_BYTES,
    SMALL_SIDE,
    large_bytes,
    probe,
)
from shunter.hardware.types import Accelerator, EnergyReading, HardwareProfile, MatmulRate, Quantity


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    accelerators = local_accelerators()
    return measure_profile(accelerators[0], host_fingerprint(accelerators), seconds_each=0.05)


def test_rates_are_measured_and_of_a_possible_size(profile: HardwareProfile) -> None:
    rates = [
        (*profile.matmul_flops_per_second.values(), 1e7, 1e16),
        (profile.copy_bytes_per_second, 1e7, 1e14),
        (profile.gather_bytes_per_second, 1e5, 1e14),
        (profile.operator_overhead_seconds, 1e-9, 1e-2),
    ]
    for *figures, least, most in rates:
        for figure in figures:
            assert figure.source == "measured"
            assert least < figure.value < most


@pytest.mark.parametrize(("method", "seconds"), [("estimated", 0.0), ("measured", 0.5)])
def test_time_goes_to_watts_only_where_a_counter_has_them(
    method: Literal["estimated", "measured"], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: list[float] = []

    def reading(_: Accelerator, seconds: float) -> EnergyReading:
        spent.append(seconds)
        return EnergyReading.of(10 * seconds, seconds, method, "a counter")

    monkeypatch.setattr("shunter.hardware.probes.accelerator._energy_at_rest", reading)
    monkeypatch.setattr("shunter.hardware.probes.accelerator._energy_at_work", reading)
    monkeypatch.setattr("shunter.hardware.probes.rates.repeat", lambda work, device, seconds: [1.0, 1.0, 1.0])
    measure_profile(local_accelerators()[0], "host", seconds_each=0.25)
    assert spent == [0.0, seconds, seconds], "after a look at what can be read here, twice as long as for a rate"


def test_bytes_and_products_are_counted_as_they_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes a second, so that a rate is the work itself."""
    monkeypatch.setattr("shunter.hardware.probes.rates.repeat", lambda work, device, seconds: [1.0, 1.0, 1.0])
    accelerator = local_accelerators()[0]
    rates = probe(accelerator, seconds_each=0.0)
    assert rates.copy_bytes_per_second.value == 2 * large_bytes(accelerator), "read and written"
    assert rates.gather_bytes_per_second.value == 2**18 * ROW_BYTES, "the rows alone"
    assert rates.matmul_flops_per_second["fp32"].value == 2 * 1024**3, "multiply and add"
    assert rates.operator_overhead_seconds.value < 1.0, "a part of the step"


def test_products_are_measured_by_size_in_each_precision_that_is_not_emulated(profile: HardwareProfile) -> None:
    assert set(profile.matmul_curve) == {"fp32", "bf16"}
    rates = profile.matmul_flops_per_second
    if rates["bf16"].value < EMULATED_SHARE / 2 * rates["fp32"].value:
        assert profile.matmul_curve["bf16"] == ()
    for curve in filter(None, profile.matmul_curve.values()):
        assert [(point.m, point.n, point.k) for point in curve] == [
            (batch, width, width) for width in CURVE_WIDTHS for batch in CURVE_BATCHES
        ]
        for point in curve:
            rate = point.flops_per_second
            assert rate.source == "measured"
            assert rate.low is not None
            assert rate.high is not None
            assert 0 < rate.low <= rate.value <= rate.high


def test_an_emulated_precision_costs_no_large_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its products take a hundred times those of fp32."""
    asked: list[tuple[torch.dtype, int]] = []

    def measured(
        device: torch.device, dtype: torch.dtype, shape: tuple[int, int, int], seconds: float, count: int = 1
    ) -> MatmulRate:
        asked.append((dtype, shape[0]))
        rate = Quantity(value=1e9 if dtype == torch.bfloat16 else 1e11, source="measured")
        return MatmulRate(m=shape[0], n=shape[1], k=shape[2], flops_per_second=rate)

    monkeypatch.setattr("shunter.hardware.probes.rates.measure_matmul", measured)
    monkeypatch.setattr("shunter.hardware.probes.rates.repeat", lambda work, device, seconds: [1.0])
    rates = probe(local_accelerators()[0], seconds_each=0.0)
    assert {side for dtype, side in asked if dtype == torch.bfloat16} == {SMALL_SIDE}
    assert rates.matmul_flops_per_second["bf16"].value == 1e9
    assert rates.matmul_curve["bf16"] == ()
    assert len(rates.matmul_curve["fp32"]) == len(CURVE_BATCHES) * len(CURVE_WIDTHS)


def test_a_copy_to_a_device_is_not_measured_where_there_is_none(profile: HardwareProfile) -> None:
    assert profile.host_to_device_bytes_per_second is None


def test_power_says_where_it_comes_from(profile: HardwareProfile) -> None:
    assert profile.idle_watts is not None
    assert profile.busy_watts is not None
    assert min(profile.idle_watts.value, profile.busy_watts.value) > 0
    if profile.busy_watts.source == "estimated":  # what a counter shows at rest is the work of others too
        assert profile.idle_watts.value < profile.busy_watts.value
    assert profile.energy_method.split(":")[0] in ("measured", "estimated")
    assert profile.busy_watts.source == profile.energy_method.split(":")[0]


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    probe(local_accelerators()[0].model_copy(update={"cores": before + 1}), seconds_each=0.01)
    assert torch.get_num_threads() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has the device")
def test_a_device_that_cannot_be_used_is_an_error_with_its_name() -> None:
    absent = Accelerator(name="cuda:0", model="NVIDIA T4", kind="cuda", cores=40, memory_bytes=2**34)
    with pytest.raises(HardwareError, match="cuda:0"):
        measure_profile(absent, "host", seconds_each=0.01)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_cuda_device_is_profiled_with_its_energy_counter() -> None:
    accelerators = local_accelerators()
    profile = measure_profile(accelerators[1], host_fingerprint(accelerators), seconds_each=0.2)
    assert profile.accelerator.kind == "cuda"
    assert profile.busy_watts is not None
    assert profile.idle_watts is not None
    assert profile.idle_watts.value < profile.busy_watts.value
