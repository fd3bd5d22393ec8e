"""Runs every benchmark in its quick form, in turn, and compares what can be compared with what is published.

A quick run has few rows, steps or seeds, so most of its figures are not those of the full one. Compared are the ratios
of two contestants of one run, and counts that must not change: those whose description says `quick_within`, the share
by which a quick figure may be worse than the published one. What is worse is shown and fails nothing, since a shared
machine alone can do that. Broken is a benchmark that ends with an error or writes no result; then the exit status is 1.
One whose data lie outside the repository and are absent says so and is passed over.

    python -m benchmarks.quick [--only NAME ...]

All of them take about half an hour on two cores of their own.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import report
from benchmarks.page import Figure, read_descriptions, read_results

LONGEST_SECONDS = 900
# Modules, the fastest first, with their options beside `--quick`.
BENCHMARKS: dict[str, tuple[str, ...]] = {
    "decide": (),
    "prefetch": (),
    "ingest": (),
    "stores": (),
    "train_step": (),
    "embedding_kernels": (),
    "train_step_gpu": (),
    "lookahead": (),
    "tiers": (),
    "hashing": (),
    "half_tables": ("--cases", "frappe_dlrm"),
    "optimizers": (),
    "meters": (),
    "predict": (),
    "predict.energy": (),
    "learning": (),
    "coverage": (),
    "drift": (),
    "day_drift": (),
    "fleet": (),
    "fleet_learning": (),
    "select": (),
    "search": (),
    "graph": (),
    "graph_variants": (),
    "towers": (),
    "plans": (),
    "compiled_processes": (),
    "scaling": (),
    "overhead": (),
    "ten_runs": (),
    "ranking": (),
    "large_rankings": (),
    "next_item": (),
    "item_index": (),
    "histories": ("--models", "hstu"),
    "fleet_live": (),
    "fleet_nodes": (),
    "fleet_move": (),
    "checkpoints": (),
    "serving": (),
    "efficiency": (),
    "quality": ("--data", "frappe", "--families", "fm"),
    "knobs": (),
    "ensembles": (),
    "friendly": (),
    "faults": (),
    "time_to_quality": ("--contests", "implicit_als_ml1m"),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a quick run.

    Attributes:
        name: Name of the benchmark.
        seconds: Wall clock.
        headline: Its figures; empty where there are none.
        error: Last line of what a broken one said.
        is_without_data: Whether that is a file that is not there.
    """

    name: str
    seconds: float
    headline: Mapping[str, Any]
    error: str = ""
    is_without_data: bool = False

    @property
    def state(self) -> str:
        """In a word or a line."""
        if not self.error:
            return "done"
        return f"{'passed over' if self.is_without_data else 'broken'}: {self.error}"

    @property
    def is_broken(self) -> bool:
        """Whether the benchmark itself is at fault."""
        return bool(self.error) and not self.is_without_data


@dataclass(frozen=True)
class Compared:
    """A figure of a quick run beside the published one.

    Attributes:
        key: Name of the figure, after that of its benchmark.
        quick: Its value now.
        published: Its value in the repository.
        is_worse: Whether it lies further on the bad side than its description bears.
    """

    key: str
    quick: float
    published: float
    is_worse: bool


def main() -> None:
    """Run them, print both tables; exit status 1 where one is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    outcomes = []
    for name in parser.parse_args().only:
        outcomes.append(run(name, BENCHMARKS[name]))
        print(f"{name}: {outcomes[-1].state}, {outcomes[-1].seconds:.0f} s", flush=True)
    sections, published = read_descriptions(), read_results()
    found = [
        one
        for outcome in outcomes
        if outcome.name in sections and outcome.name in published
        for one in compared(
            outcome,
            sections[outcome.name].filled(published[outcome.name]["headline"]).figures,
            published[outcome.name]["headline"],
        )
    ]
    show(outcomes, found)
    sys.exit(any(outcome.is_broken for outcome in outcomes))


def run(name: str, options: Sequence[str]) -> Outcome:
    """Run one in a process of its own; what it said is shown only where it failed."""
    result_name = name.rpartition(".")[2]
    path = report.result_path(result_name, "quick")
    path.unlink(missing_ok=True)
    began = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", *options]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        return Outcome(result_name, time.monotonic() - began, {}, f"not done after {LONGEST_SECONDS} s")
    seconds = time.monotonic() - began
    if finished.returncode or not path.exists():
        error = (finished.stderr.strip() or "it wrote no result").splitlines()[-1]
        return Outcome(result_name, seconds, {}, error, is_without_data=error.startswith("FileNotFoundError"))
    return Outcome(result_name, seconds, json.loads(path.read_text())["headline"])


def compared(outcome: Outcome, figures: Mapping[str, Figure], published: Mapping[str, Any]) -> list[Compared]:
    """The figures of a quick run that a full one would have, too."""
    found = []
    for key, figure in figures.items():
        quick, full = outcome.headline.get(key), published.get(key)
        if figure.quick_within is None or quick is None or full is None:
            continue
        room = figure.quick_within * abs(full)
        is_worse = quick < full - room if figure.better == "higher" else quick > full + room
        found.append(Compared(f"{outcome.name}.{key}", quick, full, is_worse))
    return found


def show(outcomes: Sequence[Outcome], found: Sequence[Compared]) -> None:
    """Print how each ended, and the figures that were compared."""
    rows = [(one.name, f"{one.seconds:.0f}", one.state) for one in outcomes]
    report.table("Quick benchmarks", ("benchmark", "seconds", "state"), rows)
    figures = [
        (one.key, f"{one.quick:.4g}", f"{one.published:.4g}", "worse" if one.is_worse else "within its share")
        for one in found
    ]
    report.table("Beside what is published", ("figure", "quick", "published", "verdict"), figures)


if __name__ == "__main__":
    main()
