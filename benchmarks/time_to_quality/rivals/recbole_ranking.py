"""RecBole on interactions of users and items, by its own configuration, trainer and full ranking.

Settings: LightGCN and BPR with 64 dimensions as in its published comparison of general recommenders
(https://recbole.io/results/general.html), the learning rate raised with the batch, which two cores need large: LightGCN
goes over the whole graph for each batch. EASE by its defaults.
"""
# pyright: reportMissingImports=false

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_seed

from benchmarks.time_to_quality.rivals.job import Job, read_job
from benchmarks.time_to_quality.rivals.ranking import read_pairs

DATA = "pairs"
PARTS = {"train": "train", "validation": "valid", "test": "test"}
SETTINGS: dict[str, dict[str, Any]] = {
    "lightgcn": {
        "embedding_size": 64,
        "n_layers": 2,
        "reg_weight": 1e-4,
        "learning_rate": 0.01,
        "train_batch_size": 32_768,
    },
    "bpr": {"embedding_size": 64, "learning_rate": 0.005, "train_batch_size": 8_192},
    "ease": {"reg_weight": 250.0},
}
NAMES = {"lightgcn": "LightGCN", "bpr": "BPR", "ease": "EASE"}


class EnoughError(Exception):
    """The time is over."""


def main() -> None:
    """Write its own format, train, keep the best epoch, score the test part."""
    job = read_job()
    torch.set_num_threads(job.threads)
    write_atomic_files(job)
    os.chdir(job.folder)  # it writes logs and checkpoints where it is
    config = Config(model=NAMES[job.model], dataset=DATA, config_dict=configuration(job))
    init_seed(config["seed"], config["reproducibility"])
    train, validation, test = data_preparation(config, create_dataset(config))
    model = get_model(config["model"])(config, train.dataset)
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, model)

    def look(_: int, quality: float) -> None:
        job.reached(quality)
        if job.is_over:
            raise EnoughError

    with suppress(EnoughError):
        trainer.fit(train, validation, saved=True, show_progress=False, callback_fn=look)
    # Its loader of checkpoints predates torch's refusal to read objects.
    kept = torch.load(trainer.saved_model_file, weights_only=False)
    model.load_state_dict(kept["state_dict"])
    model.load_other_parameter(kept.get("other_parameter"))
    found = trainer.evaluate(test, load_best_model=False, show_progress=False)
    job.finish(found["ndcg@20"], SETTINGS[job.model])


def configuration(job: Job) -> dict[str, Any]:
    """Its options."""
    return {
        "data_path": str(job.folder),
        "benchmark_filename": list(PARTS.values()),
        "load_col": {"inter": ["user_id", "item_id"]},
        "epochs": job.max_epochs,
        "eval_step": 1,
        "stopping_step": 5,
        "eval_batch_size": 1_000_000,
        "eval_args": {"mode": "full", "order": "RO", "group_by": "user"},
        "metrics": ["NDCG", "Recall"],
        "topk": 20,
        "valid_metric": "NDCG@20",
        "metric_decimal_place": 6,
        "seed": job.seed,
        "use_gpu": False,
        "show_progress": False,
        "save_dataset": False,
        **SETTINGS[job.model],
    }


def write_atomic_files(job: Job) -> None:
    """The parts in RecBole's own format."""
    folder = Path(job.folder, DATA)
    folder.mkdir()
    for part, name in PARTS.items():
        lines = (f"{user}\t{item}" for user, item in read_pairs(job.files[part]).tolist())
        (folder / f"{DATA}.{name}.inter").write_text("\n".join(["user_id:token\titem_id:token", *lines]) + "\n")


if __name__ == "__main__":
    main()
