"""A GPU's chain of sources on a stand-in for NVML: with all rights, with some, with none."""

import logging
import os

import pynvml
import pytest
import torch

from shunter.errors import HardwareError
from shunter.hardware.devices.gpu import amd_device_names, zeus_gpu
from shunter.hardware.devices.nvml import nvml_devices
from shunter.hardware.meters.gpu import IDLE_SHARE, GpuCounter, GpuUtilisationEstimate, gpu_power
from shunter.hardware.meters.meter import EnergyMeter, measure_energy
from shunter.hardware.types import EnergyReading
from tests.hardware.fake_nvml import FakeNvml

COUNTER = "nvmlDeviceGetTotalEnergyConsumption"
POWER = ("nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage")
UTILISATION = "nvmlDeviceGetUtilizationRates"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    fake.install(monkeypatch)
    return fake


def device_reading(nvml: FakeNvml, joules: float = 30.0) -> EnergyReading:
    """The device's part of a meter, while its counter rises by `joules`."""
    meter = measure_energy("cuda:0")
    with EnergyMeter(meter._components[1:], clock=iter((0.0, 2.0)).__next__, sample=False) as device:
        nvml.energy_millijoules += int(joules * 1000)
    return device.reading


def test_with_all_rights_the_counter_is_read(nvml: FakeNvml) -> None:
    reading = device_reading(nvml)
    assert (reading.joules, reading.method) == (30.0, "measured")
    assert reading.source == "cuda:0: energy counter of the device"
    assert reading.uncertainty_joules == pytest.approx(0.05 * 30 + 30 * 0.1 / 2)


class TestSharedDevice:
    """Another process' joules are not ours."""

    OTHER = 2**22 + 1  # above every process id of Linux

    def test_joules_are_divided_by_the_use_of_each_process_and_are_then_an_estimate(self, nvml: FakeNvml) -> None:
        nvml.processes = {os.getpid(): 25, self.OTHER: 75}
        reading = device_reading(nvml)
        assert reading.joules == pytest.approx(30 * 0.25)
        assert reading.method == "estimated"
        assert "divided by the use of the processes" in reading.source
        assert reading.uncertainty_joules is not None
        assert reading.uncertainty_joules > 30 * 0.75 / 2

    def test_a_process_that_does_nothing_there_takes_nothing(self, nvml: FakeNvml) -> None:
        nvml.processes = {os.getpid(): 100, self.OTHER: 0}
        assert (device_reading(nvml).joules, device_reading(nvml).method) == (pytest.approx(30.0), "measured")

    def test_where_nothing_runs_each_process_counts_alike(self, nvml: FakeNvml) -> None:
        nvml.processes = {os.getpid(): None, self.OTHER: None, self.OTHER + 1: None}
        assert device_reading(nvml).joules == pytest.approx(10.0)

    @pytest.mark.parametrize("refused", [True, False])
    def test_where_processes_are_not_known_the_whole_counts_and_the_reading_says_so(
        self, nvml: FakeNvml, refused: bool
    ) -> None:
        nvml.processes = {self.OTHER: 90}  # as in a container, which numbers processes otherwise
        if refused:
            nvml.refuse("nvmlDeviceGetComputeRunningProcesses")
        reading = device_reading(nvml)
        assert reading.joules == pytest.approx(30.0)
        assert "including other processes on it" in reading.source

    def test_what_flows_at_rest_is_stated_and_divided_alike(self, nvml: FakeNvml) -> None:
        alone = device_reading(nvml, joules=300.0)
        assert alone.idle_joules == pytest.approx(IDLE_SHARE * 300 * 2)
        nvml.processes = {os.getpid(): 50, self.OTHER: 50}
        assert device_reading(nvml, joules=300.0).idle_joules == pytest.approx(IDLE_SHARE * 300 * 2 / 2)


def test_a_meter_adds_the_device_to_the_processor(nvml: FakeNvml) -> None:
    with measure_energy("cpu", "cuda:0") as meter:
        nvml.energy_millijoules += 5000
    assert meter.reading.joules is not None
    assert meter.reading.joules >= 5.0
    assert "processor: " in meter.reading.source
    assert "cuda:0: " in meter.reading.source


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_NOT_SUPPORTED])
def test_without_the_counter_the_power_sensor_is_integrated(nvml: FakeNvml, code: int) -> None:
    nvml.refuse(COUNTER, code=code)
    reading = device_reading(nvml)
    assert reading.method == "measured"
    assert reading.source.startswith("cuda:0: power sensor of the device")
    assert "because the energy counter of the GPU cannot be read" in reading.source


def test_a_counter_that_stands_still_in_a_short_window_is_not_taken_for_zero(nvml: FakeNvml) -> None:
    reading = device_reading(nvml, joules=0.0)
    assert reading.joules is not None
    assert reading.joules > 0
    assert "stopped counting" in reading.source


def test_the_oldest_power_call_stands_in_for_the_newer_ones(nvml: FakeNvml) -> None:
    nvml.refuse("nvmlDeviceGetFieldValues", code=pynvml.NVML_ERROR_NOT_SUPPORTED)
    nvml.power_milliwatts = 42_000
    assert gpu_power("cuda:0")._read_watts() == 42.0


def test_without_counter_and_sensor_the_utilisation_is_taken_and_called_an_estimate(nvml: FakeNvml) -> None:
    nvml.refuse(COUNTER, *POWER)
    reading = device_reading(nvml)
    assert reading.method == "estimated"
    assert "utilisation of the device times its design power of 300 W (default power limit" in reading.source
    assert "energy counter of the GPU cannot be read" in reading.source
    assert "power sensor of the GPU cannot be read" in reading.source


@pytest.mark.parametrize(("percent", "watts"), [(0, IDLE_SHARE * 300), (100, 300), (50, (IDLE_SHARE + 1) / 2 * 300)])
def test_utilisation_reaches_from_idle_to_design_power(nvml: FakeNvml, percent: int, watts: float) -> None:
    nvml.utilisation_percent = percent
    estimate = GpuUtilisationEstimate("cuda:0")
    assert estimate._read_watts() == pytest.approx(watts)
    error = estimate.uncertainty(watts * 10, 10.0)
    assert error.joules >= 0.1 * 300 * 10, "at least the spread of idle powers"


def test_the_design_power_comes_from_the_catalogue_where_the_driver_does_not_tell_it(nvml: FakeNvml) -> None:
    nvml.refuse("nvmlDeviceGetPowerManagementDefaultLimit")
    assert "300 W (catalogue row NVIDIA Tesla V100 SXM2 16GB)" in GpuUtilisationEstimate("cuda:0").description
    nvml.name = "NVIDIA Graphics Device"
    with pytest.raises(HardwareError, match="design power of the GPU is unknown"):
        GpuUtilisationEstimate("cuda:0")


def test_a_device_that_tells_nothing_is_unavailable_with_every_reason(nvml: FakeNvml) -> None:
    nvml.refuse(COUNTER, *POWER, UTILISATION)
    reading = device_reading(nvml)
    assert (reading.joules, reading.method, reading.uncertainty_joules) == (None, "unavailable", None)
    for part in ("energy counter", "power sensor", "utilisation"):
        assert f"the {part} of the GPU cannot be read" in reading.source
    assert "Insufficient Permissions" in reading.source


def test_without_any_rights_the_reason_is_given_and_the_meter_still_runs(
    nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    nvml.refuse("nvmlInit")
    with measure_energy("cuda:0") as meter:
        pass
    assert meter.reading.method == "unavailable"
    assert "NVML refuses access to this process (Insufficient Permissions)" in meter.reading.source
    with caplog.at_level(logging.WARNING, logger="shunter.hardware.devices.nvml"):
        assert nvml_devices() == []
    assert "NVIDIA devices are not listed: NVML refuses access to this process" in caplog.text


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_the_absence_of_a_driver_is_no_failure(nvml: FakeNvml, caplog: pytest.LogCaptureFixture, code: int) -> None:
    nvml.refuse("nvmlInit", code=code)
    with caplog.at_level(logging.WARNING, logger="shunter.hardware.devices.nvml"):
        assert nvml_devices() == []
    assert not caplog.records


def test_a_lost_device_is_refused_by_name(nvml: FakeNvml) -> None:
    nvml.refuse("nvmlDeviceGetHandleByIndex", code=pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(HardwareError, match="GPU is lost"):
        GpuCounter("cuda:0")


class TestAmd:
    def test_without_its_library_there_are_no_devices(self) -> None:
        assert amd_device_names() == []

    def test_a_rocm_build_of_torch_asks_amd_smi(self, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "hip", "6.2")
        with pytest.raises(HardwareError, match="AMD SMI is not installed or does not answer"):
            zeus_gpu("cuda:0")
        assert COUNTER not in nvml.calls

    @pytest.mark.filterwarnings("ignore:Exception ignored in")
    def test_a_library_that_fails_is_named_in_the_log(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The library is there and answers its first call, and then finds no device file that it may open."""
        import zeus.device.gpu.amd as zeus_amd

        monkeypatch.setattr(zeus_amd, "amdsmi_is_available", lambda: True)
        with caplog.at_level(logging.WARNING, logger="shunter.hardware.devices.gpu"):
            assert amd_device_names() == []
        assert "AMD SMI is installed but lists no device" in caplog.text
