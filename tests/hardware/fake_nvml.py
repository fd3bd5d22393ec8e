"""A stand-in for NVIDIA's management library: one device whose answers, and refusals, the test sets.

It replaces the functions of `pynvml`, the lowest layer that is Python; Zeus and our own code above it are the real
ones. What a driver really answers is not tested here.
"""

import os
from types import SimpleNamespace
from typing import Any, NoReturn

import pynvml
import pytest
import torch

UUID = "GPU-0123"


class FakeNvml:
    """One device.

    Attributes:
        refused: names of NVML's functions that fail, with the code that they fail with.
        processes: utilisation of the processes on the device by their ids, in per cent; None keeps no sample.
    """

    def __init__(self, name: str = "Tesla V100-SXM2-16GB") -> None:
        self.name = name
        self.energy_millijoules = 1_000_000
        self.power_milliwatts = 50_000
        self.utilisation_percent = 0
        self.default_limit_milliwatts = 300_000
        self.limit_milliwatts = 300_000
        self.limit_range_milliwatts = (100_000, 300_000)
        self.refused: dict[str, int] = {"nvmlDeviceGetC2cModeInfoV": pynvml.NVML_ERROR_NOT_SUPPORTED}
        self.calls: list[str] = []
        self.processes: dict[int, int | None] = {os.getpid(): None}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the device in the place of the driver, and of torch's first CUDA device."""
        answers: dict[str, Any] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
            "nvmlDeviceGetName": lambda handle: self.name,
            "nvmlDeviceGetUUID": lambda handle: UUID,
            "nvmlDeviceGetC2cModeInfoV": lambda handle: None,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: self.energy_millijoules,
            "nvmlDeviceGetFieldValues": lambda handle, fields: [
                SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=self.power_milliwatts))
            ],
            "nvmlDeviceGetPowerUsage": lambda handle: self.power_milliwatts,
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=self.utilisation_percent),
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=pid) for pid in self.processes],
            "nvmlDeviceGetProcessUtilization": lambda handle, since: self._samples(since),
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: self.default_limit_milliwatts,
            "nvmlDeviceGetPowerManagementLimit": lambda handle: self.limit_milliwatts,
            "nvmlDeviceGetPowerManagementLimitConstraints": lambda handle: list(self.limit_range_milliwatts),
            "nvmlDeviceSetPowerManagementLimit": lambda handle, limit: setattr(self, "limit_milliwatts", limit),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, self._guarded(name, answer))
        properties = SimpleNamespace(uuid=UUID.removeprefix("GPU-"), name=self.name)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)

    def refuse(self, *names: str, code: int = pynvml.NVML_ERROR_NO_PERMISSION) -> None:
        """Let functions fail from now on."""
        self.refused.update(dict.fromkeys(names, code))

    def _samples(self, since: int) -> list[SimpleNamespace]:
        """One later sample of each process that has been at work; an error where there is none, as the driver gives."""
        used = {pid: percent for pid, percent in self.processes.items() if percent is not None}
        if not used:
            _fail(pynvml.NVML_ERROR_NOT_FOUND)
        return [SimpleNamespace(pid=pid, smUtil=percent, timeStamp=since + 1) for pid, percent in used.items()]

    def _guarded(self, name: str, answer: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name in self.refused:
                _fail(self.refused[name])
            return answer(*arguments)

        return call


def _fail(code: int) -> NoReturn:
    raise pynvml.NVMLError(code)
