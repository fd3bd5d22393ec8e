"""Topology of this machine's processor as the kernel reports it: sockets, cores, NUMA nodes, caches."""

import re
from pathlib import Path

from shunter.hardware.devices.cgroup import HOST_ROOT, kernel_text
from shunter.hardware.types import Cache, CpuTopology

# Instruction sets that determine the speed of matrix products and gathers; all other flags are ignored.
TELLING_FLAGS = (
    *("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_int8", "asimd", "sve", "sve2", "bf16", "i8mm"),
)


def cpu_topology(root: Path = HOST_ROOT) -> CpuTopology:
    """Return the topology of the whole machine's processor, including the parts that this process may not use.

    If the kernel reports nothing (in some containers and virtual machines), one socket, one NUMA node and one thread
    per core are assumed.

    Args:
        root: Root of the file system; tests point it at a copy.
    """
    processors = parse_list(kernel_text(root / "sys/devices/system/cpu/online"))
    if not processors:
        numbers = re.findall(r"^processor\s*:\s*(\d+)", kernel_text(root / "proc/cpuinfo"), flags=re.MULTILINE)
        processors = [int(number) for number in numbers] or [0]
    cores = {core_of(processor, root) for processor in processors}
    nodes = [path for path in (root / "sys/devices/system/node").glob("node[0-9]*") if path.is_dir()]
    return CpuTopology(
        sockets=len({package for package, _ in cores}),
        physical_cores=len(cores),
        threads=len(processors),
        numa_nodes=max(1, len(nodes)),
        caches=_caches(processors, root),
        instruction_sets=instruction_sets(root),
    )


def instruction_sets(root: Path = HOST_ROOT) -> tuple[str, ...]:
    """Return the flags in `TELLING_FLAGS` that the processor has."""
    facts = cpu_facts(root)
    flags = set((facts.get("flags") or facts.get("Features", "")).split())
    return tuple(flag for flag in TELLING_FLAGS if flag in flags)


def core_of(processor: int, root: Path = HOST_ROOT) -> tuple[str, str]:
    """Return package and core of a logical processor, so that two hardware threads of one core count once."""
    topology = root / f"sys/devices/system/cpu/cpu{processor}/topology"
    package, core = kernel_text(topology / "physical_package_id"), kernel_text(topology / "core_id")
    return (package, core) if package and core else ("?", str(processor))


def cpu_facts(root: Path = HOST_ROOT) -> dict[str, str]:
    """Return the first processor's block of /proc/cpuinfo; empty if there is none."""
    block = kernel_text(root / "proc/cpuinfo").split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def parse_list(text: str) -> list[int]:
    """Return the numbers of a kernel list such as `0-3,8`."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _caches(processors: list[int], root: Path) -> tuple[Cache, ...]:
    """Return each kind of cache once, with the count of such caches in the machine."""
    found: dict[tuple[int, str, int, int], set[str]] = {}
    for processor in processors:
        for folder in (root / f"sys/devices/system/cpu/cpu{processor}/cache").glob("index[0-9]*"):
            level, kind = kernel_text(folder / "level"), kernel_text(folder / "type")
            size = re.fullmatch(r"(\d+)([KMG]?)", kernel_text(folder / "size"))
            if not level.isdigit() or not kind or not size:
                continue
            size_bytes = int(size[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[size[2]]
            shared = kernel_text(folder / "shared_cpu_list") or str(processor)
            found.setdefault((int(level), kind.lower(), size_bytes, len(parse_list(shared))), set()).add(shared)
    return tuple(
        Cache(level=level, kind=kind, size_bytes=size, shared_by_threads=threads, count=len(instances))
        for (level, kind, size, threads), instances in sorted(found.items())
    )
