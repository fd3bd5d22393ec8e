"""What is found on a machine, on this one and on copies of other machines' kernel files."""

import logging
import os
from pathlib import Path

import psutil
import pynvml
import pytest

from shunter.hardware.devices.discovery import (
    cpu_identity,
    host_fingerprint,
    local_accelerators,
    usable_cores,
    usable_memory_bytes,
)
from shunter.hardware.devices.nvml import nvml_devices, nvml_index


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)


def write_topology(root: Path, cores: list[tuple[int, int]]) -> None:
    for processor, (package, core) in enumerate(cores):
        folder = root / f"sys/devices/system/cpu/cpu{processor}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")


def test_the_cpu_is_always_there_and_comes_first() -> None:
    cpu = local_accelerators()[0]
    assert (cpu.name, cpu.kind) == ("cpu", "cpu")
    assert 1 <= cpu.cores <= len(os.sched_getaffinity(0))
    assert 0 < cpu.memory_bytes <= psutil.virtual_memory().total
    assert cpu.model


def test_affinity_bounds_the_cores() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_two_hardware_threads_of_a_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    write_topology(tmp_path, [(0, 0), (0, 1), (0, 0), (1, 0)])
    assert usable_cores(tmp_path) == 3


@pytest.mark.parametrize(("quota", "cores"), [("50000", 1), ("150000", 1), ("200000", 2), ("900000", 4)])
def test_quota_bounds_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    write_topology(tmp_path, [(0, core) for core in range(4)])
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(f"{quota} 100000\n")
    assert usable_cores(tmp_path) == cores


def test_memory_limit_above_the_machine_changes_nothing(tmp_path: Path) -> None:
    total = psutil.virtual_memory().total
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for limit, usable in ((2 * total, total), (total // 2, total // 2)):
        (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
        assert usable_memory_bytes(tmp_path) == usable


def test_a_machine_without_cpuinfo_still_has_an_identity(tmp_path: Path) -> None:
    identity = cpu_identity(tmp_path)
    assert identity.model_name
    assert (identity.family, identity.model) == (-1, -1)


def test_fingerprint_follows_the_hardware_and_nothing_else() -> None:
    cpu = local_accelerators()[0]
    same = cpu.model_copy(
        update={"memory_bytes": cpu.memory_bytes + 4096}
    )  # The kernel keeps a few pages more or less.
    other = cpu.model_copy(update={"cores": cpu.cores + 1})
    assert host_fingerprint([cpu]) == host_fingerprint([same])
    assert host_fingerprint([cpu]) != host_fingerprint([other])


@pytest.mark.usefixtures("no_driver")
def test_without_a_driver_there_are_no_nvidia_devices() -> None:
    assert nvml_devices() == []
    if not local_accelerators()[1:]:
        assert nvml_index("cuda:0") is None


def test_a_device_that_torch_cannot_use_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: "NVIDIA T4")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: "GPU-0")
    with caplog.at_level(logging.WARNING, logger="shunter.hardware.devices.discovery"):
        accelerators = local_accelerators()
    assert [accelerator.name for accelerator in accelerators] == ["cpu"]
    assert "NVIDIA T4" in caplog.text
    assert "can use 0" in caplog.text
    assert "requirements/cuda.txt" in caplog.text


def test_the_local_cpu_tells_its_topology() -> None:
    topology = local_accelerators()[0].topology
    assert topology is not None
    assert 1 <= topology.sockets <= topology.physical_cores <= topology.threads
    assert topology.threads >= len(os.sched_getaffinity(0))
