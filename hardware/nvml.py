"""NVIDIA's management library, asked in one place: without a driver it is simply a machine without such devices."""

import logging
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NvmlDevice:
    """One device as NVML numbers it, which may differ from torch's order."""

    index: int
    name: str
    uuid: str


def nvml_devices() -> list[NvmlDevice]:
    """Every NVIDIA device of the machine, whether torch can use it or not; empty without a driver or its rights."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            NvmlDevice(index=index, name=pynvml.nvmlDeviceGetName(handle), uuid=pynvml.nvmlDeviceGetUUID(handle))
            for index, handle in enumerate(handles)
        ]
    except pynvml.NVMLError as error:
        log.debug("No NVIDIA device can be asked: %s.", error)
        return []


def nvml_index(accelerator: str) -> int | None:
    """NVML's number of torch's device `cuda:<i>`, matched by UUID; None when torch or NVML does not list it."""
    import torch

    if not torch.cuda.is_available():
        return None
    uuid = str(torch.cuda.get_device_properties(torch.device(accelerator)).uuid).removeprefix("GPU-")
    return next((device.index for device in nvml_devices() if device.uuid.removeprefix("GPU-") == uuid), None)
