"""Families that read a history id by id, beside one that pools it, by the command: the protocol of DIN on real choices.

Amazon's reviews of games as Kang and McAuley prepared them (ICDM 2018), asked as Zhou et al. (KDD 2018) ask: given what
a user reviewed before, the latest 20, is an item the one that came next, or one drawn evenly from those that the user
never reviewed? Of each user the last item is a row of the test part, the one before it of validation, and those before
are the training part, each beside one that was drawn. A row holds the item and the history alone, and no user.

    python -m benchmarks.histories [--quick] [--models dlrm din bst hstu sequence] [--seeds 0] [--max-epochs N]

Each training is a run of the product's own flow with its defaults and one setting, in a process and a home of its own.
Rows merge into one file as soon as they are done; one that is run again takes the place of the former.
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import report
from benchmarks.next_item import LEAST_ITEMS, read_parts

MODELS = ("dlrm", "din", "bst", "hstu", "sequence")
LENGTH = 20
DRAWN_SEED = 0
QUICK_USERS = 1_500


def main() -> None:
    """Train each, print and publish; with `--one` train that alone and print it as the last line."""
    given = report.parse_arguments(__doc__, _add_options)
    if given.one:
        print(json.dumps(trained(given.one, given.seeds[0], given.max_epochs, quick=given.quick)))
        return
    for model in given.models:
        for seed in given.seeds:
            size = [*(["--quick"] if given.quick else []), *_epochs(given.max_epochs)]
            row = report.measure("benchmarks.histories", "--one", model, "--seeds", str(seed), *size)
            print(f"{model} seed {seed}: test AUC {row['test']['auc']:.4f}", flush=True)
            rows = {(one["model"], one["seed"]): one for one in (*known_rows(quick=given.quick), row)}
            publish(sorted(rows.values(), key=lambda one: (MODELS.index(one["model"]), one["seed"])), quick=given.quick)


def known_rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """The rows that are written down."""
    path = report.result_path("histories", "quick" if quick else "")
    return json.loads(path.read_text())["details"]["rows"] if path.exists() else []


def publish(rows: list[dict[str, Any]], *, quick: bool) -> None:
    """Write all rows and the means over their seeds."""
    headline: dict[str, float] = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        for name in ("auc", "ne"):
            headline[f"games_{model}_{name}"] = round(fmean(row["test"][name] for row in own), 4)
        headline[f"games_{model}_minutes"] = round(fmean(row["minutes"] for row in own), 1)
    report.table(
        "Amazon's games as DIN asks", ("figure", "value"), [(name, str(one)) for name, one in headline.items()]
    )
    report.publish("histories", headline, {"rows": rows}, seeds=sorted({row["seed"] for row in rows}), quick=quick)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--max-epochs", type=int, help="fewer than the product's own")
    parser.add_argument("--one", choices=MODELS, help=argparse.SUPPRESS)


def _epochs(most: int | None) -> list[str]:
    return [] if most is None else ["--max-epochs", str(most)]


def asked_rows(users: int | None = None) -> dict[str, pd.DataFrame]:
    """The rows of each part: an item, what its user chose before it, and whether it came next.

    Args:
        users: The first ones; None is all.
    """
    parts = read_parts(users)
    places = {"train": 0, "validation": 1, "test": 2}
    log = pd.concat([frame.assign(part=part, place=places[part]) for part, frame in parts.items()])
    log = log.sort_values(["user", "place"], kind="stable", ignore_index=True)
    items = np.unique(log.item.to_numpy())
    random = np.random.default_rng(DRAWN_SEED)
    found: dict[str, list[tuple[int, str, int]]] = {part: [] for part in parts}
    for _, own in log.groupby("user", sort=True):
        chosen, of_part = own.item.tolist(), own.part.tolist()
        if len(chosen) < LEAST_ITEMS:
            continue
        known = set(chosen)
        for place in range(1, len(chosen)):
            seen = " ".join(map(str, chosen[max(0, place - LENGTH) : place]))
            drawn = int(random.choice(items))
            while drawn in known:
                drawn = int(random.choice(items))
            found[of_part[place]] += [(chosen[place], seen, 1), (drawn, seen, 0)]
    return {part: pd.DataFrame(rows, columns=["item", "seen", "chosen"]) for part, rows in found.items()}


def write_files(folder: Path, users: int | None) -> dict[str, str]:
    """The parts and their schema as files, by the names of the options that take them."""
    for part, frame in asked_rows(users).items():
        frame.to_parquet(folder / f"{part}.parquet", index=False)
    history = {"column": "seen", "separator": " ", "items": "item", "length": LENGTH}
    schema = {"label": "chosen", "categorical": ["item"], "sequences": [history], "vocabulary": {"min_count": 1}}
    (folder / "schema.json").write_text(json.dumps(schema))
    names = {"data": "train", "validation": "validation", "test": "test"}
    paths = {option: str(folder / f"{part}.parquet") for option, part in names.items()}
    return {**paths, "schema_file": str(folder / "schema.json")}


def trained(model: str, seed: int, epochs: int | None, *, quick: bool) -> dict[str, Any]:
    """One run of the flow."""
    from shunter.flows.command.environment import prepare_environment
    from shunter.flows.command.start import start
    from shunter.requests import TrainRequest

    with TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SHUNTER_HOME"] = f"{folder}/home"
        files = write_files(folder, QUICK_USERS if quick else None)
        prepare_environment(debug=False)
        size = {"max_epochs": 1 if quick else epochs}
        options = {"model": model, "trials": 1, "ensemble_size": 1, "promote": "always", "seed": seed}
        began = time.monotonic()
        summary = start("shunter.flows.train:train", TrainRequest(**options, **files, **size, baselines="none"))
        result = summary.result
        return {
            "model": model,
            "seed": seed,
            "minutes": (time.monotonic() - began) / 60,
            "placement": summary.decision.placement.label,
            "validation": result.validation.to_dict(),
            "test": result.test.to_dict(),
            "spec": summary.tuned.best.spec.to_dict(),
            "learned_with": summary.tuned.best.hyperparameters.to_dict(),
            "epochs": [len(member.history) for member in result.members if hasattr(member, "history")],
        }


if __name__ == "__main__":
    main()
