"""The processor's topology on copies of the kernel's files."""

from pathlib import Path

import pytest

from shunter.hardware.devices.discovery import last_level_cache_bytes
from shunter.hardware.devices.topology import cpu_topology, parse_list
from shunter.hardware.types import Cache


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def write_cache(root: Path, processor: int, index: int, *, level: int, kind: str, size: str, shared: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{processor}/cache/index{index}"
    for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
        write(folder / name, text)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Two sockets of two cores with two threads each; thread n + 4 is the second thread of core n."""
    write(tmp_path / "sys/devices/system/cpu/online", "0-7")
    for processor in range(8):
        core = processor % 4
        topology = tmp_path / f"sys/devices/system/cpu/cpu{processor}/topology"
        write(topology / "physical_package_id", core // 2)
        write(topology / "core_id", core % 2)
        write_cache(tmp_path, processor, 0, level=1, kind="Data", size="32K", shared=f"{core},{core + 4}")
        write_cache(tmp_path, processor, 1, level=1, kind="Instruction", size="32K", shared=f"{core},{core + 4}")
        shared = "0-1,4-5" if core < 2 else "2-3,6-7"
        write_cache(tmp_path, processor, 2, level=3, kind="Unified", size="16M", shared=shared)
    for node in range(2):
        (tmp_path / f"sys/devices/system/node/node{node}").mkdir(parents=True)
    write(tmp_path / "proc/cpuinfo", "processor : 0\nflags : fpu avx2 fma avx512f amx_bf16 nonsense")
    return tmp_path


def test_sockets_cores_threads_and_nodes_are_counted(server: Path) -> None:
    topology = cpu_topology(server)
    assert (topology.sockets, topology.physical_cores, topology.threads, topology.numa_nodes) == (2, 4, 8, 2)
    assert topology.instruction_sets == ("avx2", "fma", "avx512f", "amx_bf16")
    assert topology.label == "2 sockets, 4 cores, 8 threads, 2 NUMA nodes, L3 2 x 16 MiB"


def test_each_kind_of_cache_comes_once_with_its_number(server: Path) -> None:
    assert cpu_topology(server).caches == (
        Cache(level=1, kind="data", size_bytes=32 * 2**10, shared_by_threads=2, count=4),
        Cache(level=1, kind="instruction", size_bytes=32 * 2**10, shared_by_threads=2, count=4),
        Cache(level=3, kind="unified", size_bytes=16 * 2**20, shared_by_threads=4, count=2),
    )
    assert last_level_cache_bytes(server) == 16 * 2**20


def test_threads_that_are_offline_do_not_count(server: Path) -> None:
    write(server / "sys/devices/system/cpu/online", "0-1,4-5")
    topology = cpu_topology(server)
    assert (topology.sockets, topology.physical_cores, topology.threads) == (1, 2, 4)


def test_a_kernel_that_tells_nothing_still_has_a_processor(tmp_path: Path) -> None:
    topology = cpu_topology(tmp_path)
    assert (topology.sockets, topology.physical_cores, topology.threads, topology.numa_nodes) == (1, 1, 1, 1)
    assert (topology.caches, topology.instruction_sets) == ((), ())
    assert topology.label == "1 socket, 1 core, 1 thread, 1 NUMA node"
    assert last_level_cache_bytes(tmp_path) == 32 * 2**20


def test_without_sysfs_the_processors_of_cpuinfo_count(tmp_path: Path) -> None:
    write(tmp_path / "proc/cpuinfo", "processor\t: 0\nFeatures\t: asimd sve\n\nprocessor\t: 1\nFeatures\t: asimd sve")
    topology = cpu_topology(tmp_path)
    assert (topology.threads, topology.instruction_sets) == (2, ("asimd", "sve"))


def test_a_cache_of_unknown_size_is_left_out(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, 0, level=2, kind="Unified", size="unknown", shared="0")
    assert cpu_topology(tmp_path).caches == ()


@pytest.mark.parametrize(("text", "numbers"), [("0-3,8", [0, 1, 2, 3, 8]), ("5", [5]), ("", []), ("0-0,2\n", [0, 2])])
def test_kernel_lists(text: str, numbers: list[int]) -> None:
    assert parse_list(text) == numbers
