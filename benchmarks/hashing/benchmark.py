"""Learned maps beside hashing: which values share a row, in equal bytes, by the NE on the test part.

Three click logs, of which each table of 200 values or more gets a half to a fiftieth of the bytes of its exact form
(rows of 16 numbers in fp32). Contestants, each as a schema of `shunter train` has it: `learned_rows`, whose map counts
and takes a third of the bytes at most, so that `max_ids` leaves rare values to its hash; the hashing trick
(`hash_size`); double hashing and quotient-remainder as bags whose rows are summed, the latter's numbering of values
counted as nothing; and the most frequent values alone (`max_ids`), with their keys. All have the same DLRM, settings
and seeds; nothing was searched for any of them. The best epoch is chosen by the validation part.

    python -m benchmarks.hashing [--data frappe ml1m criteo] [--factors 2 5 10 20 50] [--seeds 0 1 2]
        [--minutes 8] [--quick]

A cell is a log, a factor, a method and a seed; cells are written down as soon as they are done, and a run goes on with
those that are missing.
"""

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from benchmarks import report
from benchmarks.hashing.methods import EXACT, FREQUENT, HASHING, LEARNED, METHODS
from benchmarks.hashing.row import TRIALS, run

NAME = "hashing"
FACTORS = (10, 2, 50, 5, 20)  # in the order of their interest
SEEDS = (0, 1, 2)
QUICK_FACTORS = (10,)
MOST_OVER = 1.02  # bytes over what is allowed: a map has some bytes however few values it knows
Cell = tuple[str, str, float, int]
Rows = Sequence[dict[str, Any]]


def main() -> None:
    """Run what is missing, as far as the time goes, and publish all that is known."""
    given = report.parse_arguments(__doc__, _options)
    factors, seeds = (QUICK_FACTORS, SEEDS[:1]) if given.quick else (given.factors, given.seeds)
    began, rows = time.monotonic(), known_rows(quick=given.quick)
    done = {cell_of(row) for row in rows}
    for cell in planned(given.data, factors, seeds):
        if (
            cell in done
            or cell in map(cell_of, rows)
            or (given.minutes and time.monotonic() - began > 60 * given.minutes)
        ):
            continue
        new = run(*cell, quick=given.quick)
        print(f"{cell}: test NE {new['test']['ne']:.4f}", flush=True)
        written = rows if given.quick else known_rows(quick=False)  # others may have run meanwhile
        rows = [*(row for row in written if cell_of(row) != cell), new]
        publish(rows, quick=given.quick)
    show(rows)
    publish(rows, quick=given.quick)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--factors", nargs="+", type=int, default=list(FACTORS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--minutes", type=float, help="begin no cell after so long; a later run goes on")


def planned(data: Iterable[str], factors: Iterable[float], seeds: Iterable[int]) -> list[Cell]:
    """The cells in the order in which they are run: all methods of a log and factor after one another."""
    data, factors = list(data), list(factors)
    cells: list[Cell] = []
    for seed in seeds:
        cells += [(name, EXACT, 1, seed) for name in data]
        cells += [(name, method, factor, seed) for factor in factors for name in data for method in METHODS]
    return cells


def cell_of(row: dict[str, Any]) -> Cell:
    """Which cell a row is."""
    return row["data"], row["method"], row["factor"], row["seed"]


def known_rows(*, quick: bool) -> list[dict[str, Any]]:
    """The rows that are written down."""
    path = report.result_path(NAME, "quick" if quick else "")
    return json.loads(path.read_text())["details"]["rows"] if path.exists() and not quick else []


def gains(rows: Rows, data: str, factor: float, rival: str) -> list[float]:
    """By how much the NE of the learned map lies below a rival's, as a share of it, for each seed with both."""
    found = {cell_of(row): row["test"]["ne"] for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    pairs = [(found.get((data, LEARNED, factor, seed)), found.get((data, rival, factor, seed))) for seed in seeds]
    return [1 - ours / theirs for ours, theirs in pairs if ours and theirs]


def winner(rows: Rows, data: str, factor: float) -> str | None:
    """The method with the lowest mean NE; None where one was not run."""
    means = {method: _mean(rows, data, factor, method) for method in METHODS}
    known = {method: mean for method, mean in means.items() if mean is not None}
    return min(known, key=lambda one: known[one]) if len(known) == len(METHODS) else None


def headline(rows: Rows) -> dict[str, Any]:
    """Gains over hashing by factor, the mean of the logs and each; who won how often."""
    figures: dict[str, Any] = {}
    factors, logs = sorted({row["factor"] for row in rows} - {1}), [name for name in TRIALS if _has(rows, name)]
    for factor in factors:
        for rival in (one for one in METHODS if one != LEARNED):
            of_logs = {name: gains(rows, name, factor, rival) for name in logs}
            name_of = f"ne_gain_vs_{rival}_{factor:g}x"
            means = [fmean(one) for one in of_logs.values() if one]
            if len(means) == len(TRIALS):
                figures[name_of] = round(fmean(means), 5)
            for name, one in of_logs.items():
                if one:
                    figures[f"{name}_{name_of}"] = round(fmean(one), 5)
                if len(one) > 1 and rival == HASHING:
                    figures[f"{name}_{name_of}_std"] = round(stdev(one), 5)
    won = {name: [winner(rows, name, factor) for factor in factors] for name in logs}
    for name, methods in won.items():
        figures[f"{name}_won_by_learned"] = methods.count(LEARNED)
        figures[f"{name}_factors"] = sum(method is not None for method in methods)
        figures[f"{name}_exact_ne"] = _mean(rows, name, 1, EXACT)
    better = [all(fmean(one) > 0 for factor in factors if (one := gains(rows, name, factor, HASHING))) for name in logs]
    figures["logs_better_than_hashing"] = sum(better)
    figures["seeds"] = len({row["seed"] for row in rows})
    return figures


def publish(rows: Rows, *, quick: bool) -> None:
    """Write all rows and what they come to."""
    shares = {method: max((_share(row) for row in rows if row["method"] == method), default=0.0) for method in METHODS}
    assert shares[LEARNED] <= MOST_OVER, f"learned maps took {shares[LEARNED]:.3f} of the bytes that they may take"
    details = {"rows": list(rows), "most_of_the_bytes": shares}
    report.publish(NAME, headline(rows), details, seeds=sorted({row["seed"] for row in rows}), quick=quick)


def show(rows: Rows) -> None:
    """Print a table for each log."""
    for name in (one for one in TRIALS if _has(rows, one)):
        lines = []
        for factor in sorted({row["factor"] for row in rows if row["data"] == name} - {1}):
            means = {method: _mean(rows, name, factor, method) for method in METHODS}
            told = ["-" if mean is None else f"{mean:.4f}" for mean in means.values()]
            lines.append((f"{factor:g}", *told, winner(rows, name, factor) or "-"))
        exact = _mean(rows, name, 1, EXACT)
        title = f"{TRIALS[name].log.title}: NE on the test part; exact {exact:.4f}" if exact else name
        report.table(title, ("times fewer bytes", *METHODS, "won"), lines)


def _has(rows: Rows, data: str) -> bool:
    return any(row["data"] == data for row in rows)


def _mean(rows: Rows, data: str, factor: float, method: str) -> float | None:
    """Mean NE over the seeds that all methods have."""
    of_method = {
        one: {row["seed"] for row in rows if (row["data"], row["method"], row["factor"]) == (data, one, factor)}
        for one in ({EXACT} if method == EXACT else METHODS)
    }
    seeds = set.intersection(*of_method.values())
    chosen = [row["test"]["ne"] for row in rows if cell_of(row)[:3] == (data, method, factor) and row["seed"] in seeds]
    return fmean(chosen) if chosen else None


def _share(row: dict[str, Any]) -> float:
    """The bytes of a row's smaller tables over those that they may have, with the map where it tells values apart."""
    is_mapped = row["method"] in (LEARNED, FREQUENT)
    return (row["table_bytes"] + (row["map_bytes"] if is_mapped else 0)) / row["allowed_bytes"]
