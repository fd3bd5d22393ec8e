"""Access to NVIDIA's management library (NVML); a machine without driver counts as one without NVIDIA devices."""

import logging
from dataclasses import dataclass
from typing import Any

from shunter.errors import HardwareError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NvmlDevice:
    """NVIDIA device under NVML's number, which may differ from torch's."""

    index: int
    name: str
    uuid: str


def nvml_devices() -> list[NvmlDevice]:
    """Return every NVIDIA device of the machine, including devices that torch cannot use.

    The list is empty without a driver. If NVML is installed but refuses access, the list is empty and the reason is
    logged.
    """
    try:
        return _devices()
    except HardwareError as error:
        log.warning("NVIDIA devices are not listed: %s.", error)
        return []


def nvml_index(accelerator: str) -> int | None:
    """Return NVML's number of torch's device `cuda:<i>`, matched by UUID; None if torch or NVML does not list it.

    Raises:
        HardwareError: NVML is installed but refuses access.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    uuid = str(torch.cuda.get_device_properties(torch.device(accelerator)).uuid).removeprefix("GPU-")
    return next((device.index for device in _devices() if device.uuid.removeprefix("GPU-") == uuid), None)


def nvml_handle(accelerator: str) -> Any:
    """Return NVML's handle of torch's device `cuda:<i>`.

    Raises:
        HardwareError: NVML does not list the device, or refuses access to this process.
    """
    import pynvml

    index = nvml_index(accelerator)
    if index is None:
        raise HardwareError(f"NVML does not list the GPU {accelerator}")
    try:
        return pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        raise HardwareError(f"NVML refuses access to the GPU {accelerator} ({error})") from error


def _devices() -> list[NvmlDevice]:
    """Return every NVIDIA device; empty without a driver; raise HardwareError if NVML refuses access."""
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
            log.debug("No NVIDIA device can be queried: %s.", error)
            return []
        raise HardwareError(f"NVML refuses access to this process ({error})") from error
