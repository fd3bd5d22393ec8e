"""Handle of the management library (NVML or AMD SMI, through Zeus) for torch's device `cuda:<i>`."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shunter.errors import HardwareError, first_line

if TYPE_CHECKING:
    from zeus.device.gpu.common import GPU

log = logging.getLogger(__name__)


def zeus_gpu(accelerator: str) -> "GPU":
    """Return Zeus' object for torch's device `cuda:<i>`, of NVIDIA or (in a ROCm build of torch) of AMD.

    Raises:
        HardwareError: the library does not list the device, or refuses access to this process.
    """
    import torch

    if not torch.version.hip:
        return _nvidia_gpu(accelerator)
    from zeus.device.gpu.amd import amdsmi_is_available

    if not amdsmi_is_available():
        raise HardwareError(f"AMD SMI is not installed or does not answer, so the GPU {accelerator} cannot be queried")
    index, gpus = int(accelerator.partition(":")[2] or 0), _amd_gpus()
    if index >= len(gpus):
        raise HardwareError(f"AMD SMI does not list the GPU {accelerator}")
    return gpus[index]


def amd_device_names() -> list[str]:
    """Return the names of AMD GPUs listed by AMD SMI; empty without the library, or (with a log entry) if it fails."""
    from zeus.device.gpu.amd import amdsmi_is_available

    if not amdsmi_is_available():
        return []
    try:
        return [gpu.get_name() for gpu in _amd_gpus()]
    except HardwareError as error:
        log.warning("AMD SMI is installed but lists no device (%s).", error)
        return []


def _nvidia_gpu(accelerator: str) -> "GPU":
    from zeus.device.gpu.nvidia import NVIDIAGPU
    from zeus.exception import ZeusBaseError

    from shunter.hardware.devices.nvml import nvml_index

    index = nvml_index(accelerator)
    if index is None:
        raise HardwareError(f"NVML does not list the GPU {accelerator}")
    try:
        return NVIDIAGPU(index)
    except ZeusBaseError as error:
        raise HardwareError(f"NVML refuses access to the GPU {accelerator} ({first_line(error)})") from error


def _amd_gpus() -> "Sequence[GPU]":
    """Return Zeus' objects in torch's order; Zeus has tested which of their counters are reliable."""
    from zeus.device.gpu import get_gpus
    from zeus.device.gpu.amd import AMDGPUs
    from zeus.exception import ZeusBaseError

    try:
        found = get_gpus()
        return (found if isinstance(found, AMDGPUs) else AMDGPUs()).gpus
    except (ZeusBaseError, ValueError, RuntimeError) as error:
        raise HardwareError(f"AMD SMI refuses access to this process ({first_line(error)})") from error
