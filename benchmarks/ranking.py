"""Quality of `shunter train` on a published split of interactions, by full ranking: the model and all its baselines.

The data are Movielens1M_m1 as in `benchmarks.graph`. The product's own flow trains, with its defaults: it cuts a
validation part from the training part, chooses by it alone, learns the best setting of each family again from both,
and scores the test part at the end. Further families follow in the same way, one setting each, without baselines.

    python -m benchmarks.ranking [--quick] [--trials 1] [--seed 0] [--families xsimgcl,simplex,ultragcn,twotower]
"""

import argparse
import json
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from benchmarks import report
from benchmarks.graph import read_part

MODEL = "lightgcn"
FURTHER = "xsimgcl,simplex,ultragcn,twotower"
QUICK_USERS = 300


def main() -> None:
    """Train the model with its baselines, then each further family; print and publish."""
    arguments = report.parse_arguments(__doc__, _add_options)
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        os.environ["SHUNTER_HOME"] = f"{folder}/home"
        files = write_files(Path(folder), quick=arguments.quick)
        summary = trained(files, arguments)
        headline = headline_of(summary, (time.monotonic() - began) / 60)
        alone = {}
        for family in filter(None, arguments.families.split(",")):
            began = time.monotonic()
            alone[family] = trained(files, arguments, model=family, baselines="none", ensemble_size=1)
            headline[f"ml1m_{family}_ndcg20"] = round(alone[family].result.test.ndcg20, 4)
            headline[f"ml1m_{family}_minutes"] = round((time.monotonic() - began) / 60, 1)
    rows = [(name, f"{value:.4f}") for name, value in headline.items()]
    report.table("Movielens1M_m1, the product's defaults", ("figure", "value"), rows)
    details = {
        "result": summary.reason,
        "settings": [one.spec.to_dict() | {"validation": one.validation.to_dict()} for one in summary.tried],
        "baselines": [one.model_dump(mode="json") for one in summary.baselines],
        "seconds": summary.step_seconds,
        "placement": summary.decision.placement.label,
        "alone": {
            family: {"learned_with": one.result.hyperparameters.to_dict(), **one.result.spec.to_dict()}
            for family, one in alone.items()
        },
    }
    report.publish("ranking", headline, details, seeds=[arguments.seed], quick=arguments.quick)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=1, help=f"settings of {MODEL} to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", default=FURTHER, help="families that follow, with commas between them")


def trained(files: dict[str, str], arguments: argparse.Namespace, **options: Any) -> Any:
    """The summary of the flow.

    Args:
        files: Options that name the data.
        arguments: The benchmark's own options.
        options: Options of the request beside these.
    """
    from shunter.flows.command.environment import prepare_environment
    from shunter.flows.command.start import start
    from shunter.requests import TrainRequest

    prepare_environment(debug=False)
    size = {"max_epochs": 2} if arguments.quick else {}
    common = {"model": MODEL, "trials": arguments.trials, "seed": arguments.seed}
    request = TrainRequest(**{**common, **files, **size, **options})
    return start("shunter.flows.train:train", request)


def write_files(folder: Path, *, quick: bool) -> dict[str, str]:
    """The published parts as files, with their schema: ids as they are, the rare ones too.

    A log must have both labels, and the published pairs have one. So rows that were not chosen are added, which a graph
    model does not read.
    """
    for part in ("train", "test"):
        pairs = read_part(part)
        frame = pd.DataFrame({"chosen": 1, "user": pairs.users, "item": pairs.items})
        frame = frame[frame.user <= QUICK_USERS] if quick else frame
        not_chosen = pd.DataFrame({"chosen": 0, "user": range(1, QUICK_USERS + 1), "item": 1})
        pd.concat([frame, not_chosen]).to_parquet(folder / f"{part}.parquet")
    schema = {"label": "chosen", "categorical": ["user", "item"], "user": "user", "item": "item"}
    (folder / "schema.json").write_text(json.dumps({**schema, "vocabulary": {"min_count": 1}}))
    names = {"data": "train.parquet", "test": "test.parquet", "schema_file": "schema.json"}
    return {option: str(folder / name) for option, name in names.items()}


def headline_of(summary: Any, minutes: float) -> dict[str, float]:
    """NDCG@20 on the test part: of what was registered, of each baseline and of the model that was asked for."""
    return {
        f"ml1m_{MODEL}_ndcg20": round(summary.result.test.ndcg20, 4),  # unless another one is the result
        "ml1m_auto_ndcg20": round(summary.result.test.ndcg20, 4),
        "ml1m_auto_recall20": round(summary.result.test.recall20, 4),
        "ml1m_auto_minutes": round(minutes, 1),
        **{f"ml1m_{one.name}_ndcg20": round(one.ndcg20, 4) for one in summary.baselines},
    }


if __name__ == "__main__":
    main()
