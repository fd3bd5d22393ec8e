"""NVIDIA's management library, asked in one place: without a driver it is simply a machine without such devices."""

import logging
from dataclasses import dataclass
from typing import Any

from shunter.errors import HardwareError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NvmlDevice:
    """One device as NVML numbers it, which may differ from torch's order."""

    index: int
    name: str
    uuid: str


def nvml_devices() -> list[NvmlDevice]:
    """Every NVIDIA device of the machine, whether torch can use it or not.

    Empty without a driver; empty with the reason in the log where NVML is there but refuses.
    """
    try:
        return _devices()
    except HardwareError as error:
        log.warning("NVIDIA devices are not listed: %s.", error)
        return []


def nvml_index(accelerator: str) -> int | None:
    """NVML's number of torch's device `cuda:<i>`, matched by UUID; None when torch or NVML does not list it.

    Raises:
        HardwareError: NVML is there but refuses.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    uuid = str(torch.cuda.get_device_properties(torch.device(accelerator)).uuid).removeprefix("GPU-")
    return next((device.index for device in _devices() if device.uuid.removeprefix("GPU-") == uuid), None)


def nvml_handle(accelerator: str) -> Any:
    """NVML's handle of torch's device `cuda:<i>`.

    Raises:
        HardwareError: NVML does not list the device, or refuses it to this process.
    """
    import pynvml

    index = nvml_index(accelerator)
    if index is None:
        raise HardwareError(f"NVML does not list {accelerator}")
    try:
        return pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        raise HardwareError(f"NVML refuses {accelerator} ({error})") from error


def _devices() -> list[NvmlDevice]:
    """As `nvml_devices`, but a refusal is raised."""
    import pynvml

    absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            NvmlDevice(index=index, name=pynvml.nvmlDeviceGetName(handle), uuid=pynvml.nvmlDeviceGetUUID(handle))
            for index, handle in enumerate(handles)
        ]
    except pynvml.NVMLError as error:
        if getattr(error, "value", None) in absent:
            log.debug("No NVIDIA device can be asked: %s.", error)
            return []
        raise HardwareError(f"NVML refuses this process ({error})") from error
