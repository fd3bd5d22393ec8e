"""Seconds and memory of `shunter train --model X` on a large ranking: 30,000 users, 41,000 items and 800,000 pairs.

The pairs are generated: items have a popularity by Zipf's law and a topic, users an activity and a few topics from
which most of their items are drawn. Each run is the command in a process of its own and a home that has its profile,
with one setting and no ensemble: once without baselines, and once with popularity, item-kNN and iALS. `ease` takes
6 minutes on two cores and 14 GB at full size, and is therefore no baseline here.

`seconds` are the wall clock of the whole command, start and ingestion included. `memory_told_over_taken` is the model's
own estimate of its peak over what the process took beyond that of `popularity`, which needs next to nothing; it is left
out where the estimate is below a quarter of a gibibyte, because the rest of the process varies by as much.

    python -m benchmarks.large_rankings [--quick] [--models popularity,itemknn,ials,ease] [--gowalla FOLDER]

`--gowalla` reads the published split of Gowalla instead: `train.txt` and `test.txt` of LightGCN's repository, a line
for each user with the ids of the user and of the items.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import report

MODELS = ("popularity", "itemknn", "ials", "ease")
BASELINES = "popularity,itemknn,ials"
SEED, TOPICS, TOPICS_OF_USER = 0, 200, 3
OWN_TOPICS = 0.7  # share of a user's items that are drawn from the user's topics
ZIPF_EXPONENT, ZIPF_OFFSET = 0.8, 20
FULL = {"users": 30_000, "items": 41_000, "pairs": 800_000}
QUICK = {name: count // 10 for name, count in FULL.items()}
MEASURABLE_BYTES = 2**28
GOWALLA = {"data": "train", "test": "test"}


def generated(users: int, items: int, pairs: int, *, seed: int = SEED) -> pd.DataFrame:
    """Return distinct pairs of `user` and `item`, in random order.

    Args:
        users: Number of users.
        items: Number of items.
        pairs: Number of pairs.
        seed: Seed of all draws.
    """
    random = np.random.default_rng(seed)
    topic = random.integers(0, min(TOPICS, items), items)
    weights = 1 / (ZIPF_OFFSET + random.permutation(items)) ** ZIPF_EXPONENT
    activity = random.lognormal(0.0, 0.8, users)
    by_topic = np.argsort(topic, kind="stable")
    ends = np.cumsum(weights[by_topic])
    last = np.searchsorted(topic[by_topic], np.arange(topic.max() + 1), side="right") - 1
    upper = ends[last]
    lower = np.concatenate([[0.0], upper[:-1]])
    liked = random.integers(0, len(upper), (users, TOPICS_OF_USER))
    keys = np.empty(0, np.int64)
    while len(keys) < pairs:
        who = random.choice(users, pairs, p=activity / activity.sum())
        where = liked[who, random.integers(0, TOPICS_OF_USER, pairs)]
        is_own, place = random.random(pairs) < OWN_TOPICS, random.random(pairs)
        place = np.where(is_own, lower[where] + place * (upper - lower)[where], place * ends[-1])
        drawn = who * items + by_topic[np.minimum(np.searchsorted(ends, place), items - 1)]
        keys = np.unique(np.concatenate([keys, drawn]))
    keys = random.permutation(keys)[:pairs]
    return pd.DataFrame({"user": keys // items, "item": keys % items})


def read_gowalla(path: Path) -> pd.DataFrame:
    """Return the pairs of a part of LightGCN's repository: a line for each user, with the user and the items."""
    lines = [np.array(line.split(), np.int64) for line in path.read_text().splitlines()]
    users = np.repeat([line[0] for line in lines if len(line)], [len(line) - 1 for line in lines if len(line)])
    return pd.DataFrame({"user": users, "item": np.concatenate([line[1:] for line in lines])})


def write_log(parts: dict[str, pd.DataFrame], folder: Path) -> list[str]:
    """Write the parts and their schema; return the options of the command that name them.

    A log must have both labels: a few pairs are added that were not chosen, which a ranking model does not read.
    """
    for option, pairs in parts.items():
        rows = pd.concat([pairs.assign(chosen=1), pairs.head(100).assign(chosen=0)])
        rows.to_parquet(folder / f"{option}.parquet")
    schema = {"label": "chosen", "categorical": ["user", "item"], "user": "user", "item": "item"}
    (folder / "schema.json").write_text(json.dumps({**schema, "vocabulary": {"min_count": 1}}))
    named = [text for option in parts for text in (f"--{option}", str(folder / f"{option}.parquet"))]
    return [*named, "--schema", str(folder / "schema.json")]


def run(home: Path, log: list[str], model: str, baselines: str, seed: int) -> dict[str, Any]:
    """Train by the command; return wall-clock and processor seconds and the peak memory of the process.

    Raises:
        RuntimeError: The command failed; what it said is in the message.
    """
    options = [*log, "--model", model, "--baselines", baselines, "--trials", "1", "--ensemble-size", "1"]
    command = [sys.executable, "-m", "shunter.flows.cli", "train", *options, "--seed", str(seed)]
    environment = {**os.environ, "SHUNTER_HOME": str(home)}
    environment.pop("PREFECT_API_URL", None)
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, text=True)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{said.read()}")
    return {
        "seconds": time.perf_counter() - began,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
        "seed": seed,
    }


def told_bytes(home: Path, model: str) -> int:
    """Return the peak memory that a model expects of itself on the ingested log."""
    from shunter.engine.data.dataset import Dataset
    from shunter.engine.ranking.interactions import read_graph
    from shunter.models.graph import graph_spec, solved_model

    dataset = Dataset.load(max((home / "cache").rglob("dataset.json")).parent)
    return solved_model(model).counts(graph_spec(model), read_graph(dataset)).peak_bytes


def headline_of(runs: dict[str, dict[str, dict[str, Any]]], told: dict[str, int]) -> dict[str, float]:
    """Return seconds by model with and without baselines, and the memory told over taken.

    Args:
        runs: By model, `alone` and, but for `ease`, `with_baselines`.
        told: Estimated peak of each model.
    """
    found: dict[str, float] = {}
    for model, of_model in runs.items():
        found[f"{model}_seconds"] = round(of_model["alone"]["seconds"], 1)
        if "with_baselines" in of_model:
            found[f"{model}_baselines_seconds"] = round(of_model["with_baselines"]["seconds"], 1)
        taken = of_model["alone"]["peak_bytes"] - runs["popularity"]["alone"]["peak_bytes"]
        if told[model] >= MEASURABLE_BYTES and taken > 0:
            found[f"{model}_memory_told_over_taken"] = round(told[model] / taken, 3)
    return found


def main() -> None:
    """Train each model with and without baselines; print and publish."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--models", default=",".join(MODELS), help="models to train, with commas between them")
        parser.add_argument("--gowalla", type=Path, help="folder of Gowalla's train.txt and test.txt")

    options = report.parse_arguments(__doc__, add)
    models = ["popularity", *(one for one in options.models.split(",") if one != "popularity")]
    runs: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        if options.gowalla:
            parts = {name: read_gowalla(options.gowalla / f"{part}.txt") for name, part in GOWALLA.items()}
        else:
            parts = {"data": generated(**(QUICK if options.quick else FULL))}
        log = write_log(parts, Path(folder))
        run(home, log, "popularity", "none", SEED)  # it measures the machine
        for seed, model in enumerate(models, 1):
            runs[model] = {"alone": run(home, log, model, "none", seed)}
            if model != "ease":
                runs[model]["with_baselines"] = run(home, log, model, BASELINES, seed)
        told = {model: told_bytes(home, model) for model in models}
    headline = headline_of(runs, told)
    report.table("Large rankings", ("figure", "value"), [(name, f"{value:,.3f}") for name, value in headline.items()])
    details = {"data": "gowalla" if options.gowalla else "generated", "runs": runs, "told_bytes": told}
    name = "large_rankings_gowalla" if options.gowalla else "large_rankings"
    report.publish(name, headline, details, seeds=range(len(models) + 1), quick=options.quick)


if __name__ == "__main__":
    main()
