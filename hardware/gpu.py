"""What the management library knows of a GPU that torch calls `cuda:<i>`: NVML or AMD SMI, through Zeus."""

import logging
from typing import TYPE_CHECKING

from hardware.energy import first_line
from shunter.errors import HardwareError

if TYPE_CHECKING:
    from zeus.device.gpu.common import GPU

log = logging.getLogger(__name__)


def zeus_gpu(accelerator: str) -> "GPU":
    """Zeus' object for torch's device `cuda:<i>`; a ROCm build of torch calls AMD's devices so, too.

    Raises:
        HardwareError: the library does not list the device, or does not let this process ask it.
    """
    import torch

    return _amd_gpu(accelerator) if torch.version.hip else _nvidia_gpu(accelerator)


def amd_device_names() -> list[str]:
    """AMD GPUs that AMD SMI lists; empty without its library, and empty with the reason in the log when it fails."""
    from zeus.device.gpu.amd import AMDGPUs, amdsmi_is_available
    from zeus.exception import ZeusBaseError

    if not amdsmi_is_available():
        return []
    try:
        return [gpu.get_name() for gpu in AMDGPUs().gpus]
    except (ZeusBaseError, ValueError, RuntimeError) as error:
        log.warning("AMD SMI is installed but lists no device (%s).", first_line(error))
        return []


def _nvidia_gpu(accelerator: str) -> "GPU":
    from zeus.device.gpu.nvidia import NVIDIAGPU
    from zeus.exception import ZeusBaseError

    from hardware.nvml import nvml_index

    index = nvml_index(accelerator)
    if index is None:
        raise HardwareError(f"NVML does not list {accelerator}")
    try:
        return NVIDIAGPU(index)
    except ZeusBaseError as error:
        raise HardwareError(f"NVML refuses {accelerator} ({first_line(error)})") from error


def _amd_gpu(accelerator: str) -> "GPU":
    from zeus.device.gpu.amd import AMDGPU, amdsmi_is_available
    from zeus.exception import ZeusBaseError

    if not amdsmi_is_available():
        raise HardwareError(f"AMD SMI is not installed or does not answer, so {accelerator} cannot be asked")
    try:
        return AMDGPU(int(accelerator.partition(":")[2] or 0))
    except (ZeusBaseError, RuntimeError) as error:
        raise HardwareError(f"AMD SMI refuses {accelerator} ({first_line(error)})") from error
