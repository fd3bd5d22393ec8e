"""Ensembles of one training's snapshots beside single models that cost as much, in one's memory, and under errors.

For each log and seed one run of `shunter train --ensemble-of snapshots --ensemble-size 3` on the job file of a family
in `recipes/`, each in an empty home: it trains the setting once by its recipe and once along three cosines. The rival
is two trainings by the recipe, that of the seed and that of the next one (after the last the first), so that both cost
about two trainings (`snapshot_cost_ratio`, by samples). What is made of them is made by the product's step `ensemble`,
and compared by the NE on the test part, which has fitted and chosen nothing.

`same_memory_ne_gap`: members packed into the bytes of the file of the best single (`--ensemble-memory`), their NE
relative to its own. `robust_auc_gain_<rate>`: the same chosen for a bit in 10,000 that flips (`--memory-error-rate`),
with check bits and the detector of damaged members, its mean AUC less that of the best single in the same bytes: as it
is, or packed by itself with check bits, numbers corrected or not, whichever is best at that rate.
`check_bits_auc_gain_<rate>`: what the check bits of the ensemble save beside the correction of numbers alone. Errors
are simulated. What energy that saves at an equal AUC is estimated by `benchmarks.ensembles.energy`.
`distilled_ne_gap`: one model that learns what the ensemble predicts (`--distill always`), relative to the ensemble.
`shared_tables_ne_gap`: members over one set of tables (`benchmarks.ensembles.sharing`), as they are, relative to the
product's packed members in the bytes that they would take in 8 bits. `bound_coverage` is simulated, see
`benchmarks.ensembles.coverage`.

    python -m benchmarks.ensembles [--data frappe ml1m] [--model dcnv2] [--seeds 0 1 2] [--parts snapshots packed ...]
        [--work FOLDER] [--quick]

Trainings stay in the folder, and each part of a log and seed is written down as soon as it is done, in
`results/ensembles.<data>.<model>.<seed>.<part>.partial.json`: a run measures what is missing of what it was asked for,
and publishes that with all that earlier runs have measured.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks import report
from benchmarks.ensembles.coverage import DRAWS, QUICK_DRAWS, WORLDS, World, coverage
from benchmarks.ensembles.energy import relative_power
from benchmarks.ensembles.row import ANSWERS, PARTS
from benchmarks.ensembles.trainings import SUMMARY, WORK, folder_of

NAME = "ensembles"
DATA, SEEDS = ("frappe", "ml1m"), (0, 1, 2)
SINGLES = ("single", "packed_single")
DETECTED = "members"  # what answers errors in an ensemble


def main() -> None:
    """Run what is missing, print and publish."""
    given = parse_arguments()
    for data in given.data:
        for seed in given.seeds:
            for part in given.parts:
                measured(given, data, seed, part)
    rows = [row for data in DATA for seed in SEEDS if (row := found_row(given, data, seed))]
    held = {world.unit: kept_coverage(world, is_quick=given.quick) for world in WORLDS}
    show(rows)
    details = {"rows": rows, "coverage": held, "wanted": {"data": list(DATA), "seeds": list(SEEDS)}}
    seeds = sorted({row["seed"] for row in rows})
    report.publish(NAME, {**headline(rows), **bound_figures(held)}, details, seeds=seeds, quick=given.quick)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--data", nargs="*", choices=DATA, default=list(DATA))
        parser.add_argument("--model", default="dcnv2", help="family, trained by its recipe for the log")
        parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=list(SEEDS))
        parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured of each")
        parser.add_argument("--work", type=Path, default=WORK, help="folder of the trainings")

    given = report.parse_arguments(__doc__, add)
    if given.quick:
        given.data, given.seeds, given.work = given.data[:1], given.seeds[:1], given.work / "quick"
    return given


def part_path(given: argparse.Namespace, data: str, seed: int, part: str) -> Path:
    """Where a part of a row is written down."""
    kind = "quick" if given.quick else "partial"
    return report.RESULTS / f"{NAME}.{data}.{given.model}.{seed}.{part}.{kind}.json"


def measured(given: argparse.Namespace, data: str, seed: int, part: str) -> None:
    """Measure a part of a row, if no earlier run has."""
    path = part_path(given, data, seed, part)
    if path.exists() and not given.quick:
        return
    following = seed if given.quick else SEEDS[(SEEDS.index(seed) + 1) % len(SEEDS)]
    own, other = (trained(given, data, one) for one in (seed, following))
    quick = ["--quick"] if given.quick else []
    found = report.measure("benchmarks.ensembles.row", part, str(seed), str(own), str(other), *quick)
    path.write_text(json.dumps(found))


def found_row(given: argparse.Namespace, data: str, seed: int) -> dict[str, Any] | None:
    """What was measured of a log and seed; None where the snapshots were not."""
    paths = {part: part_path(given, data, seed, part) for part in PARTS}
    found = {part: json.loads(path.read_text()) for part, path in paths.items() if path.exists()}
    if "snapshots" not in found:
        return None
    memory = {**found.get("packed", {}), **found.get("errors", {})}
    others = {part: found[part] for part in ("distilled", "sharing") if part in found}
    return {"data": data, "seed": seed, **found["snapshots"], **({"memory": memory} if memory else {}), **others}


def kept_coverage(world: World, *, is_quick: bool) -> dict[str, float]:
    """How often the bounds of a world hold, or what an earlier run wrote of it."""
    if is_quick:
        return coverage(world, QUICK_DRAWS)
    path = report.RESULTS / f"{NAME}.coverage.{world.unit}.partial.json"
    if not path.exists():
        path.write_text(json.dumps(coverage(world, DRAWS)))
    return json.loads(path.read_text())


def trained(given: argparse.Namespace, data: str, seed: int) -> Path:
    """Where the trainings of a log and seed lie, after they are done."""
    folder = folder_of(given.work, data, given.model, seed)
    if not (folder / SUMMARY).exists():
        asked = [data, given.model, str(seed), str(folder), *(["--quick"] if given.quick else [])]
        report.measure("benchmarks.ensembles.trainings", *asked)
    return folder


def figures_of(row: dict[str, Any]) -> dict[str, float]:
    """What is compared in one row, as far as it was measured: gains as shares of the NE of each rival."""
    ne, single, memory = row["ensemble"]["ne"], row["best_single"]["ne"], row.get("memory", {})
    found = {
        "snapshot_ne_gain": 1 - ne / single,
        "snapshot_ne_gain_over_last": 1 - ne / row["last_snapshot"]["ne"],
        "snapshot_ne_gain_over_members": 1 - ne / row["members"]["ne"],
        "snapshot_cost_ratio": row["cost"]["snapshots"] / row["cost"]["members"],
    }
    if "plain" in memory:
        found["same_memory_ne_gap"] = memory["plain"]["ne"] / single - 1
        found["same_memory_members"] = float(memory["plain"]["members"])
    if "under_errors" in memory:
        found |= {**robust(memory), **energy(memory)}
    if "distilled" in row:
        found["distilled_ne_gap"] = row["distilled"]["ne"] / ne - 1
        found["distilled_ne_gain_over_single"] = 1 - row["distilled"]["ne"] / single
    if "sharing" in row:
        found["shared_tables_ne_gap"] = row["sharing"]["ne"] / row["sharing"]["rival"]["ne"] - 1
    return found


def robust(memory: dict[str, Any]) -> dict[str, float]:
    """AUC under errors over that of the single models in the same bytes, each with what helps it most."""
    under, found = memory["under_errors"], {}
    for rate, ensemble in under["ensemble"]["rates"].items():
        if float(rate):
            singles = [one["auc"] for name in SINGLES for one in _answers(under[name]["rates"][rate])]
            found[f"robust_auc_gain_{float(rate):.0e}"] = ensemble[DETECTED]["auc"] - max(singles)
            found[f"detector_auc_gain_{float(rate):.0e}"] = ensemble[DETECTED]["auc"] - ensemble["nothing"]["auc"]
            found[f"check_bits_auc_gain_{float(rate):.0e}"] = ensemble["bits"]["auc"] - ensemble["values"]["auc"]
    return found


def energy(memory: dict[str, Any]) -> dict[str, float]:
    """Estimated energy that the ensemble saves beside a single model, both at the highest rate that keeps the AUC."""

    def drawn(name: str) -> float:
        rate = max(memory["withstood"][name].values())
        return memory["under_errors"][name]["bytes"] * relative_power(rate)

    ensemble, single, packed = (drawn(name) for name in ("ensemble", *SINGLES))
    return {
        "energy_saving_at_equal_auc": 1 - ensemble / single,
        "energy_saving_at_equal_auc_over_packed": 1 - ensemble / packed,
    }


def _answers(found: dict[str, Any]) -> list[dict[str, float]]:
    return [one for one in found.values() if isinstance(one, dict)]


LARGER_IS_WORSE = ("snapshot_cost_ratio", "same_memory_ne_gap", "distilled_ne_gap", "shared_tables_ne_gap")


def headline(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means over the seeds for each log; the plain keys are those of the log where they are worst."""
    found = [(row["data"], figures_of(row)) for row in rows]
    figures: dict[str, float] = seeds_of(rows)
    for name in dict.fromkeys(name for _, one in found for name in one):
        means = {}
        for data in dict.fromkeys(data for data, one in found if name in one):
            values = [one[name] for of, one in found if of == data and name in one]
            means[data] = figures[f"{data}_{name}"] = round(fmean(values), 5)
            if len(values) > 1:
                figures[f"{data}_{name}_std"] = round(stdev(values), 5)
        worst: Callable[..., float] = max if name in LARGER_IS_WORSE else min
        figures[name] = worst(means.values())
    return figures


def seeds_of(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How many seeds of each log there are, and how many of them have the dearer parts."""
    there: dict[str, Callable[[dict[str, Any]], bool]] = {
        "seeds": lambda _: True,
        "errors_seeds": lambda row: "under_errors" in row.get("memory", {}),
        "distilled_seeds": lambda row: "distilled" in row,
        "sharing_seeds": lambda row: "sharing" in row,
    }
    logs = dict.fromkeys(row["data"] for row in rows)
    return {
        f"{data}_{name}": sum(is_there(row) for row in rows if row["data"] == data)
        for data in logs
        for name, is_there in there.items()
    }


def bound_figures(held: dict[str, dict[str, float]]) -> dict[str, float]:
    """The coverage of each bound, and the least of them all."""
    figures = {f"bound_coverage_{figure}_{unit}": share for unit, one in held.items() for figure, share in one.items()}
    return {"bound_coverage": min(figures.values()), **figures}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a line for each row."""
    ways = ("ensemble", "best_single", "last_snapshot", "members")

    def ne_of(found: dict[str, Any] | None) -> str:
        return "-" if found is None else f"{found['ne']:.4f}"

    lines = [
        (
            row["data"],
            str(row["seed"]),
            *(ne_of(row[way]) for way in ways),
            ne_of(row.get("memory", {}).get("plain")),
            ne_of(row.get("distilled")),
            ne_of(row.get("sharing")),
        )
        for row in rows
    ]
    report.table("NE on the test part", ("log", "seed", *ways, "packed", "distilled", "shared tables"), lines)
    names = (*SINGLES, "ensemble")
    damaged = [
        (row["data"], str(row["seed"]), f"{float(rate):g}", *(_cells(row["memory"]["under_errors"], rate, names)))
        for row in rows
        if "under_errors" in row.get("memory", {})
        for rate in row["memory"]["under_errors"]["single"]["rates"]
    ]
    report.table(f"AUC under errors ({' / '.join(ANSWERS)})", ("log", "seed", "rate", *names), damaged)


def _cells(under: dict[str, Any], rate: str, names: Sequence[str]) -> list[str]:
    return [" / ".join(f"{one['auc']:.4f}" for one in _answers(under[name]["rates"][rate])) for name in names]
