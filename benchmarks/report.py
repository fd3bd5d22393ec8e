"""What every benchmark shares: where and when it ran, measuring in a fresh process, and how its figures are given."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

PACKAGES = ("numpy", "pandas", "polars", "pyarrow", "torch", "torchrec")
RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs" / "benchmarks"


def parse_arguments(
    description: str | None, add: Callable[[argparse.ArgumentParser], None] | None = None
) -> argparse.Namespace:
    """Read the command line of a benchmark: `--quick`, and what `add` adds."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, less than a minute")
    if add is not None:
        add(parser)
    return parser.parse_args()


def machine() -> dict[str, Any]:
    """The machine, as far as it decides about speed."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
    }


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, its first column to the left and the others to the right; plain text where rich is missing."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ModuleNotFoundError:
        print("\n".join([title, *("\t".join(row) for row in (columns, *rows))]))
        return
    printed = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        printed.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        printed.add_row(*row)
    Console().print(printed)


def publish(
    name: str,
    headline: Mapping[str, float | int | str | bool | None],
    details: Mapping[str, Any],
    *,
    seeds: Sequence[int],
    quick: bool,
    partial: bool = False,
) -> None:
    """Write `results/NAME.json` and print the headline as the last line.

    A quick run writes `results/NAME.quick.json`, so that it never replaces the published figures.

    Args:
        name: Name of the benchmark.
        headline: Flat figures, units in their names.
        details: Everything that was measured.
        seeds: Seeds of everything drawn.
        quick: Whether the sizes were reduced.
        partial: Whether more is to come: then nothing is printed, and the file is `results/NAME.partial.json`.
    """
    result = {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": machine(),
        "versions": {package: _version(package) for package in PACKAGES},
        "seeds": list(seeds),
        "headline": dict(headline),
        "details": dict(details),
    }
    path = result_path(name, "partial" if partial else "quick" if quick else "")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    if not partial:
        print(json.dumps(dict(headline)))


def result_path(name: str, kind: Literal["", "quick", "partial"] = "") -> Path:
    """The file of a benchmark's results: what is published, or a quick or unfinished run beside it."""
    return RESULTS / ".".join(filter(None, (name, kind, "json")))


def measure(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m module arguments` and read the JSON object that it prints as its last line.

    A fresh process, so that neither memory nor warm caches pass from one contestant to the next.

    Args:
        module: Module that is run.
        arguments: Its command line.
        environment: Variables that it gets beside ours.

    Raises:
        RuntimeError: The process failed; its output is in the message.
    """
    command = [sys.executable, "-m", module, *arguments]
    variables = {**os.environ, **(environment or {})}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            output, errors = process.communicate()
        except KeyboardInterrupt:
            process.wait()  # it was interrupted too, and has a state to save
            raise
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{output}{errors}")
    return json.loads(output.splitlines()[-1])


def peak_memory_mib() -> float:
    """Most resident memory of this process so far.

    The kernel's high-water mark of this process alone: `ru_maxrss` starts from that of the parent.
    """
    status = Path("/proc/self/status").read_text()
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kibibytes) / 1024


class Stopwatch:
    """Wall-clock and processor seconds since it was made; the latter tell contention from slowness."""

    def __init__(self) -> None:
        """Start."""
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Seconds so far."""
        return {
            "wall_seconds": time.perf_counter() - self._wall,
            "processor_seconds": time.process_time() - self._processor,
        }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # a bare machine with torch and numpy alone
        return None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
