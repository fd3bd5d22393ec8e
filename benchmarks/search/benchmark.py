"""Ways of searching compared: on real trainings, on published tables, and each for what it is said to save.

Five parts, each in a file of its own that says what it measures, and each with a command of its own:

- `methods`: best NE against trials and seconds of random, tpe, dnas, rl and transfer on two click logs
  (`methods.py`);
- `hpo`: the same methods, but for dnas, on published tables of hyper-parameter optimisation (`hpo.py`);
- `transfer`: trials that past searches save, one of eight click logs left out at a time (`transfer.py`);
- `rl`: evaluations that a past saves the controller, on tables of trained architectures (`rl.py`, and
  `table.py`, which trains them first);
- `dnas`: fronts of differentiable search against random ones (`dnas.py`).

    python -m benchmarks.search [--quick] [--parts methods hpo ...] [--methods random dnas ...] [--seeds 0 1 ...]
        [--folder FOLDER]

A part that is not asked for keeps the figures that were published before, with the date at which they were measured;
so does, in `methods`, a method that is not.
The picture beside the result shows the curves.
"""

import argparse
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.search.figure import draw

Figures = dict[str, Any]
Seeds = Sequence[int] | None  # None: as many as the part is meant to have


def _methods(folder: Path, seeds: Seeds, methods: Sequence[str] | None = None) -> Figures:
    from benchmarks.search.methods import METHODS, SEEDS, Plan, measure

    return measure(Plan(folder=folder, seeds=tuple(seeds or SEEDS), methods=tuple(methods or METHODS)))


def _hpo(folder: Path, seeds: Seeds) -> Figures:
    from benchmarks.search.hpo import SEEDS, measure

    return measure(seeds=seeds or SEEDS)


def _transfer(folder: Path, seeds: Seeds) -> Figures:
    from benchmarks.search.transfer import Plan, measure

    plan = Plan(folder=folder)
    return measure(replace(plan, seeds=tuple(seeds or plan.seeds)))


def _rl(folder: Path, seeds: Seeds) -> Figures:
    from benchmarks.search.rl import measure

    return measure(seeds) if seeds else measure()


def _dnas(folder: Path, seeds: Seeds) -> Figures:
    from benchmarks.search.dnas import measure

    return measure(folder)


PARTS: dict[str, Callable[[Path, Seeds], Figures]] = {
    "methods": _methods,
    "hpo": _hpo,
    "transfer": _transfer,
    "rl": _rl,
    "dnas": _dnas,
}


def main() -> None:
    """Measure the parts that are asked for, and publish them with the others."""
    arguments = parse_arguments()
    logging.getLogger("optuna").setLevel(logging.WARNING)  # it tells of each study and trial
    if arguments.quick:
        from benchmarks.search.methods import Plan, measure

        parts = {"methods": dated(measure(Plan.quick()))}
    else:
        with TemporaryDirectory() as temporary:
            folder = arguments.folder or Path(temporary)
            parts = {**PARTS, "methods": partial(_methods, methods=arguments.methods)}
            measured = {name: dated(parts[name](folder / name, arguments.seeds)) for name in arguments.parts}
        known = published()  # read last: another part may have been published in the meantime
        if "methods" in measured and "methods" in known:
            measured["methods"] = beside(known["methods"], measured["methods"])
        parts = {**known, **measured}
        if (figure := draw(parts)) is not None:
            figure.savefig(report.PICTURES / "search.png")
    report.publish("search", headline(parts), parts, seeds=seeds(parts), quick=arguments.quick)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="two methods, few trials on few rows")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--methods", nargs="+", help="of the part `methods`; the others keep their figures")
    parser.add_argument(
        "--seeds", nargs="+", type=int, help="fewer or more than a part has by itself; dnas keeps its own"
    )
    parser.add_argument("--folder", type=Path, help="keeps data sets and searches, so that an interrupted run goes on")
    return parser.parse_args()


def beside(known: Figures, new: Figures) -> Figures:
    """Methods that were measured now among those that were before, each with its date."""
    dates = known.get("dates") or dict.fromkeys(next(iter(known["details"].values())), known["date"])
    measured = dict.fromkeys(next(iter(new["details"].values())), new["date"])
    details = {data: {**known["details"].get(data, {}), **methods} for data, methods in new["details"].items()}
    return {**known, **new, "details": details, "dates": {**dates, **measured}}


def published() -> dict[str, Figures]:
    """The parts as they were published last."""
    path = report.RESULTS / "search.json"
    known = json.loads(path.read_text())["details"] if path.exists() else {}
    return {name: figures for name, figures in known.items() if name in PARTS}


def dated(figures: Figures) -> Figures:
    """With the time at which they were brought together."""
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), **figures}


def headline(parts: Mapping[str, Figures]) -> dict[str, float]:
    """The flat figures of all parts; whole numbers are sizes, not results."""
    return {
        name: value
        for part in PARTS
        for name, value in parts.get(part, {}).items()
        if isinstance(value, float) and not isinstance(value, bool)
    }


def seeds(parts: Mapping[str, Figures]) -> list[int]:
    """All seeds that were used; a part may tell their number instead, from 0 on."""
    used: set[int] = set()
    for figures in parts.values():
        of_part = figures.get("seeds", ())
        used |= set(range(of_part) if isinstance(of_part, int) else of_part)
    return sorted(used)
