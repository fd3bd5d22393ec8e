"""Next-item recommendation by the command: SASRec beside what costs seconds, on its authors' data.

Amazon's reviews of games as Kang and McAuley prepared them (ICDM 2018): what each of 31,013 users reviewed, in its
order; of those with at least three items the last is the test part and the one before it the validation part. The
product's own flow trains with its defaults and one setting, keeps the epoch of the best NDCG@20 among all items on
validation, and learns again with that part. What is registered is then asked for the scores of each user's test item
and 100 items that the user never reviewed, as the paper does; an item that training did not hold counts as missed.

    python -m benchmarks.next_item [--quick] [--seed 0] [--max-epochs 40] [--baselines popularity,itemknn,ials]
        [--folder FOLDER]

With `--folder` an interrupted run goes on where it stopped.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import report
from benchmarks.quality.data import SHARED_DATA

LOG = SHARED_DATA / "amazon_video_games_sasrec.txt.gz"
CUTOFF, NEGATIVES = 10, 100
USERS_AT_ONCE = 2_000
QUICK_USERS = 1_500
LEAST_ITEMS = 3  # of a user who is validated and tested on


def main() -> None:
    """Train, ask for the scores of the sampled items, print and publish."""
    given = report.parse_arguments(__doc__, _add_options)
    began = time.monotonic()
    with _folder(given.folder) as folder:
        os.environ["SHUNTER_HOME"] = f"{folder}/home"
        parts = read_parts(QUICK_USERS if given.quick else None)
        summary = trained(write_files(parts, folder), given)
        minutes = (time.monotonic() - began) / 60
        hit, gain = sampled_quality(scores_of_champion(), parts, given.seed)
    headline = {
        "games_sasrec_hit10": round(hit, 4),
        "games_sasrec_ndcg10": round(gain, 4),
        "games_sasrec_ndcg20_full": round(summary.result.test.ndcg20, 4),
        "games_sasrec_recall20_full": round(summary.result.test.recall20, 4),
        "games_sasrec_minutes": round(minutes, 1),
        **{f"games_{one.name}_ndcg20_full": round(one.ndcg20, 4) for one in summary.baselines},
    }
    rows = [(name, f"{value:.4f}") for name, value in headline.items()]
    report.table("Amazon's games, the product's defaults", ("figure", "value"), rows)
    details = {
        "result": summary.reason,
        "spec": summary.result.spec.to_dict(),
        "learned_with": summary.result.hyperparameters.to_dict(),
        "settings": [one.spec.to_dict() | {"validation": one.validation.to_dict()} for one in summary.tried],
        "baselines": [one.model_dump(mode="json") for one in summary.baselines],
        "test": summary.result.test.to_dict(),
        "seconds": summary.step_seconds,
        "placement": summary.decision.placement.label,
    }
    report.publish("next_item", headline, details, seeds=[given.seed], quick=given.quick)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--baselines", default="popularity,itemknn,ials", help="what is solved beside it")
    parser.add_argument("--max-epochs", type=int, help="fewer than the product's own")
    parser.add_argument("--folder", type=Path, help="keeps files and home, so that an interrupted run goes on")


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def read_parts(users: int | None = None) -> dict[str, pd.DataFrame]:
    """What each user reviewed, in its order, as the parts of the paper; `users` are the first ones, None is all."""
    with gzip.open(LOG, "rt") as lines:
        pairs = np.array([line.split() for line in lines], dtype=np.int64)
    log = pd.DataFrame(pairs, columns=["user", "item"]).assign(chosen=1)
    log = log if users is None else log[log.user <= users]
    from_the_end = log.groupby("user").cumcount(ascending=False)
    is_split = log.groupby("user").user.transform("size") >= LEAST_ITEMS
    rows = {
        "train": ~is_split | (from_the_end >= 2),
        "validation": is_split & (from_the_end == 1),
        "test": is_split & (from_the_end == 0),
    }
    return {part: log.loc[chosen] for part, chosen in rows.items()}


def write_files(parts: dict[str, pd.DataFrame], folder: Path) -> dict[str, str]:
    """The parts and their schema as files: ids as they are; a log of positives alone."""
    for part, frame in parts.items():
        frame.to_parquet(folder / f"{part}.parquet", index=False)
    schema = {"label": "chosen", "categorical": ["user", "item"], "user": "user", "item": "item"}
    (folder / "schema.json").write_text(json.dumps({**schema, "vocabulary": {"min_count": 1}}))
    names = {"data": "train", "validation": "validation", "test": "test"}
    paths = {option: str(folder / f"{part}.parquet") for option, part in names.items()}
    return {**paths, "schema_file": str(folder / "schema.json")}


def trained(files: dict[str, str], given: argparse.Namespace) -> Any:
    """The summary of the flow: one setting, one model in the end."""
    from shunter.flows.command.environment import prepare_environment
    from shunter.flows.command.start import start
    from shunter.requests import TrainRequest

    prepare_environment(debug=False)
    size = {"max_epochs": 2 if given.quick else given.max_epochs}
    options = {"model": "sasrec", "trials": 1, "ensemble_size": 1, "promote": "always", "seed": given.seed}
    return start("shunter.flows.train:train", TrainRequest(**options, **files, **size, baselines=given.baselines))


def scores_of_champion() -> Any:
    """What gives the scores of the pairs of a frame, float64 `[rows]`: the registered model, as a user loads it."""
    from shunter.tracking.registry.models import load_champion

    return load_champion().predict


def sampled_quality(scores_of: Any, parts: dict[str, pd.DataFrame], seed: int) -> tuple[float, float]:
    """Hit rate and NDCG at 10 of each test item among 100 that its user never reviewed; a tie counts as behind them."""
    items = np.unique(np.concatenate([frame.item.to_numpy() for frame in parts.values()]))
    known_items = np.unique(np.concatenate([parts[part].item.to_numpy() for part in ("train", "validation")]))
    base = int(items.max()) + 1
    whole = pd.concat(parts.values())
    reviewed = np.sort(whole.user.to_numpy() * base + whole.item.to_numpy())
    test, random = parts["test"], np.random.default_rng(seed)
    ranks = []
    for start in range(0, len(test), USERS_AT_ONCE):
        part = test.iloc[start : start + USERS_AT_ONCE]
        users = np.repeat(part.user.to_numpy(), NEGATIVES)
        drawn = random.choice(items, len(users))
        while len(wrong := np.flatnonzero(np.isin(users * base + drawn, reviewed, assume_unique=False))):
            drawn[wrong] = random.choice(items, len(wrong))
        asked = np.concatenate([part.item.to_numpy()[:, None], drawn.reshape(-1, NEGATIVES)], axis=1)
        frame = pd.DataFrame({"user": np.repeat(part.user.to_numpy(), NEGATIVES + 1), "item": asked.ravel()})
        scores = np.asarray(scores_of(frame), dtype=np.float64).reshape(len(part), -1)
        rank = (scores[:, 1:] >= scores[:, :1]).sum(axis=1)
        ranks.append(np.where(np.isin(part.item.to_numpy(), known_items), rank, NEGATIVES))
    rank = np.concatenate(ranks)
    is_hit = rank < CUTOFF
    return float(is_hit.mean()), float((is_hit / np.log2(rank + 2)).mean())


if __name__ == "__main__":
    main()
