"""Accelerators that this process can use: the CPU, and every CUDA device that torch can run on."""

import hashlib
import logging
import os
import platform
from pathlib import Path

import psutil

from shunter.hardware.catalogue.rows import CpuIdentity
from shunter.hardware.devices.cgroup import cpu_quota, memory_limit_bytes
from shunter.hardware.devices.topology import core_of, cpu_facts, cpu_topology, instruction_sets
from shunter.hardware.types import Accelerator

log = logging.getLogger(__name__)


def local_accelerators() -> list[Accelerator]:
    """Return every device of this machine that can run a training job, the CPU first."""
    cpu = Accelerator(
        name="cpu",
        model=cpu_identity().model_name,
        kind="cpu",
        cores=usable_cores(),
        memory_bytes=usable_memory_bytes(),
        instruction_sets=instruction_sets(),
        topology=cpu_topology(),
    )
    return [cpu, *_local_cuda_devices()]


def host_fingerprint(accelerators: list[Accelerator]) -> str:
    """Return a fingerprint of the kind of machine, shared by equal machines and by all containers on one machine."""
    facts = [
        (
            accelerator.name,
            accelerator.model,
            accelerator.cores,
            round(accelerator.memory_bytes / 2**30),
            accelerator.instruction_sets,
        )
        for accelerator in accelerators
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of physical cores that this process may use, within its affinity mask and its CPU quota.

    Args:
        root: Root of the file system; tests point it at a copy.
    """
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = {core_of(processor, root) for processor in affinity}
    quota = cpu_quota(root)
    return max(1, len(cores) if quota is None else min(len(cores), int(quota)))


def usable_memory_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use: the machine's, or a lower control group limit."""
    total = psutil.virtual_memory().total
    limit = memory_limit_bytes(root)
    return total if limit is None else min(total, limit)


def cpu_identity(root: Path = Path("/")) -> CpuIdentity:
    """Return vendor, family, model and name of the processor, as the kernel reports them."""
    facts = cpu_facts(root)
    return CpuIdentity(
        model_name=facts.get("model name") or platform.processor() or platform.machine(),
        vendor=facts.get("vendor_id", ""),
        family=int(facts.get("cpu family", -1)),
        model=int(facts.get("model", -1)),
    )


def last_level_cache_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of the first processor's largest cache; 32 MiB if the kernel does not report caches."""
    return max((cache.size_bytes for cache in cpu_topology(root).caches), default=32 * 2**20)


def _local_cuda_devices() -> list[Accelerator]:
    """Return the CUDA devices that torch can use, including AMD's under ROCm; log a warning if torch misses some."""
    import torch

    from shunter.hardware.devices.gpu import amd_device_names
    from shunter.hardware.devices.nvml import nvml_devices

    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = [device.name for device in nvml_devices()] + amd_device_names()
    if len(names) > usable:
        log.warning(
            "The machine has %d GPU(s) (%s) but torch %s can use %d: install requirements/cuda.txt, for AMD a ROCm "
            "build of torch, or check CUDA_VISIBLE_DEVICES.",
            len(names),
            ", ".join(names),
            torch.__version__,
            usable,
        )
    accelerators = []
    for index in range(usable):
        properties = torch.cuda.get_device_properties(index)
        accelerators.append(
            Accelerator(
                name=f"cuda:{index}",
                model=properties.name,
                kind="cuda",
                cores=properties.multi_processor_count,
                memory_bytes=properties.total_memory,
                instruction_sets=(f"sm_{properties.major}{properties.minor}",),
            )
        )
    return accelerators
