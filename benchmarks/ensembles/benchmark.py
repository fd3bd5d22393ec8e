"""Ensembles of one training's snapshots beside single models that cost as much, and how often a promise holds.

For each log and seed two runs of `shunter train` on the job file of a family in `recipes/`, each in an empty home:
`--ensemble-of snapshots --ensemble-size 3`, and `--ensemble-size 2`. The first trains the setting once by its recipe
and once along three cosines, the second twice by its recipe, so that both cost about two trainings
(`snapshot_cost_ratio`, by samples, is what the first costs relative to the second). Compared is the NE on the test
part, which has fitted and chosen nothing: of the ensemble as it is registered, of its last snapshot alone, and of the
best of the second run's two models, each of these chosen and calibrated by the validation part as the product does with
one model. A gain is what the ensemble saves of their NE.

`bound_coverage` is simulated, see `benchmarks.ensembles.coverage`.

    python -m benchmarks.ensembles [--data frappe ml1m] [--model dcnv2] [--seeds 0 1 2] [--quick]

Each row is written down as soon as it is done, and a run that finds rows done goes on with the others.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks import report
from benchmarks.ensembles.coverage import DRAWS, QUICK_DRAWS, WORLDS, coverage

NAME = "ensembles"
DATA, SEEDS = ("frappe", "ml1m"), (0, 1, 2)


def main() -> None:
    """Run what is missing, print and publish."""
    given = parse_arguments()
    rows = [
        kept(data, given.model, seed, is_quick=given.quick, is_new=given.fresh)
        for data in given.data
        for seed in given.seeds
    ]
    held = {world.unit: coverage(world, QUICK_DRAWS if given.quick else DRAWS) for world in WORLDS}
    show(rows)
    details = {"rows": rows, "coverage": held, "wanted": {"data": list(DATA), "seeds": list(SEEDS)}}
    report.publish(NAME, {**headline(rows), **bound_figures(held)}, details, seeds=given.seeds, quick=given.quick)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
        parser.add_argument("--model", default="dcnv2", help="family, trained by its recipe for the log")
        parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
        parser.add_argument("--fresh", action="store_true", help="train again what an earlier run has written down")

    given = report.parse_arguments(__doc__, add)
    if given.quick:
        given.data, given.seeds, given.fresh = given.data[:1], given.seeds[:1], True
    return given


def kept(data: str, model: str, seed: int, *, is_quick: bool, is_new: bool) -> dict[str, Any]:
    """One row, or what an earlier run wrote of the same one."""
    path = partial_of(data, model, seed)
    if path.exists() and not is_new:
        return json.loads(path.read_text())
    row = report.measure("benchmarks.ensembles.row", data, model, str(seed), *(["--quick"] if is_quick else []))
    if not is_quick:
        path.write_text(json.dumps(row))
    return row


def partial_of(data: str, model: str, seed: int) -> Path:
    """Where a row is written down."""
    return report.RESULTS / f"{NAME}.{data}.{model}.{seed}.partial.json"


def gains(row: dict[str, Any]) -> dict[str, float]:
    """What the ensemble of snapshots saves in one row, as shares of the NE of each rival, and what it costs."""
    snapshots, members = row["snapshots"], row["members"]
    ne = snapshots["ensemble"]["ne"]
    # Where a training is too short for two cycles there are no snapshots, and its last weights are all there is.
    last = snapshots.get("last_snapshot", snapshots["best_single"])
    return {
        "over_best_single": 1 - ne / members["best_single"]["ne"],
        "over_last": 1 - ne / last["ne"],
        "over_members": 1 - ne / members["ensemble"]["ne"],
        "cost_ratio": snapshots["cost"]["samples"] / members["cost"]["samples"],
    }


def headline(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means over the seeds for each log; the plain keys are those of the log where the ensemble gains least."""
    figures: dict[str, float] = {}
    names = {
        "over_best_single": "snapshot_ne_gain",
        "over_last": "snapshot_ne_gain_over_last",
        "over_members": "snapshot_ne_gain_over_members",
        "cost_ratio": "snapshot_cost_ratio",
    }
    worst = {**dict.fromkeys(names, min), "cost_ratio": max}
    for key, name in names.items():
        means = {}
        for data in dict.fromkeys(row["data"] for row in rows):
            found = [gains(row)[key] for row in rows if row["data"] == data]
            means[data] = fmean(found)
            figures[f"{data}_{name}"] = round(means[data], 5)
            if len(found) > 1:
                figures[f"{data}_{name}_std"] = round(stdev(found), 5)
            figures[f"{data}_snapshot_seeds"] = len(found)
        figures[name] = round(worst[key](means.values()), 5)
    return figures


def bound_figures(held: dict[str, dict[str, float]]) -> dict[str, float]:
    """The coverage of each bound, and the least of them all."""
    figures = {f"bound_coverage_{figure}_{unit}": share for unit, one in held.items() for figure, share in one.items()}
    return {"bound_coverage": min(figures.values()), **figures}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a line for each row."""
    columns = ("log", "seed", "NE, snapshots", "best single", "last snapshot", "two members", "cost")
    lines = []
    for row in rows:
        found = gains(row)
        ne = row["snapshots"]["ensemble"]["ne"]
        rivals = [f"{ne / (1 - found[key]):.4f}" for key in ("over_best_single", "over_last", "over_members")]
        lines.append((row["data"], str(row["seed"]), f"{ne:.4f}", *rivals, f"{found['cost_ratio']:.2f}"))
    report.table("NE on the test part", columns, lines)
