"""Less arithmetic for the same answer: each way to spare some, beside what it replaces, in one run.

Every file of `benchmarks/efficiency/parts` is a part, which says what it measures. Parts may run one after the other:
what an earlier run has published of the others stays.

    python -m benchmarks.efficiency [--parts NAME ...] [--quick]
"""

import argparse
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from benchmarks import report
from benchmarks.efficiency import parts
from benchmarks.efficiency.part import Part

NAME = "efficiency"


def main() -> None:
    """Run the parts that are asked for, and publish them beside the others."""
    known = part_names()

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--parts", nargs="+", choices=known, default=known)

    given = report.parse_arguments(__doc__, add)
    found = {name: measure_of(name)(quick=given.quick) for name in given.parts}
    kept = published_parts(set(known) - set(found), quick=given.quick)
    headline, details, seeds = merged({**kept, **{name: asdict(part) for name, part in found.items()}})
    report.publish(NAME, headline, details, seeds=seeds, quick=given.quick)


def part_names() -> list[str]:
    """Names of the parts, in the order in which they run."""
    return sorted(module.name for module in pkgutil.iter_modules(parts.__path__))


def measure_of(name: str) -> Callable[..., Part]:
    """The function that measures a part."""
    return importlib.import_module(f"{parts.__name__}.{name}").measure


def published_parts(names: Iterable[str], *, quick: bool) -> dict[str, dict[str, Any]]:
    """What an earlier run has published of some parts."""
    path = report.result_path(NAME, "quick" if quick else "")
    if not path.exists():
        return {}
    known = json.loads(path.read_text())["details"]
    return {name: known[name] for name in names if name in known}


def merged(found: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any], list[int]]:
    """Headline of all parts, their details by their names, and all seeds."""
    headline = {key: value for name in sorted(found) for key, value in found[name]["headline"].items()}
    seeds = sorted({seed for part in found.values() for seed in part["seeds"]})
    return headline, {name: dict(found[name]) for name in sorted(found)}, seeds
