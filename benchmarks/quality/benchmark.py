"""Quality that `shunter train` reaches on click logs in published parts: by the recipes, and by `--model auto` alone.

Each row is one run of the product's own flow, in a process and a home of its own, so that no run learns from another.
Rows of families are the job files in `recipes/`; those of `auto` are `--model auto --search-minutes 20` with nothing
else said. All figures are of the weights that are kept: the validation part chose them, the test part nothing has seen
but the one scoring at the end.

Frappe_x1 is BARS' split (96,203 logged uses of apps, two negatives drawn for each; Baltrunas et al., 2015). BARS' test
part is not in the file: every second row of its validation part takes its place, so that published figures are
neighbours and not the same rows. MovieLens-1M as clicks follows AutoInt (Song et al., CIKM 2019), without the time.
Amazon's games is each user's next item or one drawn at random, by the 20 that they reviewed before (DIN's protocol),
with the user as a field.
Criteo is 20,000 rows of the Kaggle file, split at random.

    python -m benchmarks.quality [--data frappe ml1m gamesusers criteo] [--families lr fm dcnv2 auto] [--seeds 0 1 2]
        [--auto-minutes 20] [--folder FOLDER] [--quick]

Rows are merged into one file as soon as they are done, with when and how each was run; a row that is run again takes
the place of the former one. So the table can be made in parts, and with `--folder` an interrupted row goes on, as the
command does; its minutes are those of all attempts.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks import report
from benchmarks.quality.files import LOGS
from benchmarks.quality.row import AUTO, BASELINES, Row, families_of

NAME = "quality"
AUTO_MINUTES = 20.0
TREES = "gbt"  # trained by `auto` as a baseline, and by no recipe
# AUC on the test part by BARS' leaderboard of Frappe_x1, https://openbenchmark.github.io/BARS.
PUBLISHED = {
    ("frappe", "fm"): 0.9671,
    ("frappe", "lr"): 0.9356,
    ("frappe", "dnn"): 0.9833,
    ("frappe", "dlrm"): 0.9840,
    ("frappe", "deepfm"): 0.9842,
    ("frappe", "dcnv2"): 0.9845,
    ("frappe", "finalmlp"): 0.9861,
    ("frappe", "autoint"): 0.9848,
    ("frappe", "masknet"): 0.9837,
}
ALL_FAMILIES = tuple(dict.fromkeys((*BASELINES, TREES, *(name for data in LOGS for name in families_of(data)), AUTO)))


def main() -> None:
    """Run what is asked for, write each row down, and publish all that is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one epoch on 20,000 rows, searches of a tenth")
    parser.add_argument("--data", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument(
        "--families",
        nargs="+",
        choices=[one for one in ALL_FAMILIES if one != TREES],
        default=[one for one in ALL_FAMILIES if one != TREES],
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--auto-minutes", type=float, default=AUTO_MINUTES, help="longest search of auto")
    parser.add_argument("--folder", type=Path, help="keeps files and homes, so that an interrupted row goes on")
    given = parser.parse_args()
    for row in planned(given.data, given.families, given.seeds, given.auto_minutes, quick=given.quick):
        new = measured(row, given.folder)
        publish(merged(known_rows(quick=given.quick), new), quick=given.quick)
    show(known_rows(quick=given.quick))


def planned(
    data: Sequence[str], families: Sequence[str], seeds: Sequence[int], minutes: float, *, quick: bool = False
) -> list[Row]:
    """The rows of some parts of the table, logistic regression and factorisation machine among the families always.

    `auto` comes last, and trains both by itself.
    """
    rows = []
    for name in data:
        own = families_of(name)
        asked = dict.fromkeys([*(BASELINES if set(families) - {AUTO} else ()), *families])
        chosen = [family for family in asked if family in own or family == AUTO]
        rows += [
            Row(name, family, seed, minutes / 10 if quick else minutes, quick)
            for family in sorted(chosen, key=lambda one: one == AUTO)
            for seed in seeds
        ]
    return rows


def measured(row: Row, folder: Path | None = None) -> list[dict[str, Any]]:
    """What a run came to, in a process of its own."""
    options = [*(["--quick"] if row.is_quick else []), *(["--folder", str(folder)] if folder else [])]
    rows = report.measure("benchmarks.quality.row", row.data, row.model, str(row.seed), str(row.minutes), *options)[
        "rows"
    ]
    for one in rows:
        print(
            f"{one['data']} {one['model']} seed {one['seed']}: test AUC {one['test']['auc']:.4f}, "
            f"{one['minutes']:.1f} minutes",
            flush=True,
        )
    return rows


def known_rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """The rows that are written down."""
    path = report.result_path(NAME, "quick" if quick else "")
    return json.loads(path.read_text())["details"].get("rows", []) if path.exists() else []


def merged(known: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows; of two for the same model, log and seed the later, but a recipe's stays before one that `auto` made."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in (*known, *new):
        key = (row["data"], row["model"], row["seed"])
        is_by_the_way = row["model"] in BASELINES and "auto" in row["by"]
        if not (is_by_the_way and key in found and "auto" not in found[key]["by"]):
            found[key] = row
    order = {model: place for place, model in enumerate(ALL_FAMILIES)}
    return sorted(found.values(), key=lambda row: (list(LOGS).index(row["data"]), order[row["model"]], row["seed"]))


def headline(rows: Sequence[dict[str, Any]]) -> dict[str, float | int]:
    """Means over the seeds, with the spread where there are several."""
    figures: dict[str, float | int] = {}
    for data, model in dict.fromkeys((row["data"], row["model"]) for row in rows):
        own = [row for row in rows if (row["data"], row["model"]) == (data, model)]
        name = f"{data}_{model}"
        aucs = [row["test"]["auc"] for row in own]
        figures[f"{name}_auc"] = round(fmean(aucs), 4)
        if len(own) > 1:
            figures[f"{name}_auc_std"] = round(stdev(aucs), 5)
        figures[f"{name}_logloss"] = round(fmean(row["test"]["logloss"] for row in own), 4)
        figures[f"{name}_validation_auc"] = round(fmean(row["validation"]["auc"] for row in own), 4)
        if all("logloss" in row["validation"] for row in own):
            figures[f"{name}_validation_logloss"] = round(fmean(row["validation"]["logloss"] for row in own), 4)
        if model == AUTO:
            figures[f"{name}_minutes"] = round(fmean(row["minutes"] for row in own), 1)
        if (data, model) in PUBLISHED:
            figures[f"{name}_published_auc"] = PUBLISHED[data, model]
        figures[f"{name}_seeds"] = len(own)
    return figures


def publish(rows: Sequence[dict[str, Any]], *, quick: bool) -> None:
    """Write all rows and the means over them."""
    report.publish(NAME, headline(rows), {"rows": list(rows)}, seeds=sorted({row["seed"] for row in rows}), quick=quick)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table for each log."""
    figures = headline(rows)
    columns = ("model", "AUC, test", "sd", "log loss, test", "AUC, validation", "published", "minutes", "seeds")
    for data, log in LOGS.items():
        models = dict.fromkeys(row["model"] for row in rows if row["data"] == data)

        def cell(model: str, figure: str, digits: int, of: str = data) -> str:
            value = figures.get(f"{of}_{model}_{figure}")
            return "-" if value is None else f"{value:.{digits}f}"

        lines = [
            (
                model,
                *(cell(model, name, 4) for name in ("auc", "auc_std", "logloss", "validation_auc", "published_auc")),
                cell(model, "minutes", 1),
                cell(model, "seeds", 0),
            )
            for model in models
        ]
        if lines:
            report.table(f"{log.title}, mean of the seeds", columns, lines)
