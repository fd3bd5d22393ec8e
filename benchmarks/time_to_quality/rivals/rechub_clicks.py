"""torch-rechub's DeepFM with the sizes, batch and step size that BARS publishes for Frappe_x1, by its own trainer.

Its penalties are plain sums of squares, so BARS' .05, which is halved there, is .025 here. The tables are its default
data generator's, encoded as its examples do, with scikit-learn's label encoder over all parts.
"""
# pyright: reportMissingImports=false

import copy
from typing import Any

import pandas as pd
import torch
from sklearn.preprocessing import LabelEncoder
from torch_rechub.basic.features import SparseFeature
from torch_rechub.models.ranking import DeepFM
from torch_rechub.trainers import CTRTrainer
from torch_rechub.utils.data import DataGenerator

from benchmarks.time_to_quality.rivals.job import Job, read_job

LABEL = "label"
BATCH_SIZE, EMBEDDING_DIM, PATIENCE = 4096, 10, 2
NETWORK = {"dims": [400, 400, 400], "dropout": 0.2, "activation": "relu"}
SETTINGS: dict[str, Any] = {"optimizer_params": {"lr": 1e-3}, "regularization_params": {"embedding_l2": 0.025}}


def main() -> None:
    """Prepare, train, keep the best epoch, score the test part."""
    job = read_job()
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    frames = {part: pd.read_csv(path) for part, path in job.files.items()}
    fields = [name for name in frames["train"].columns if name != LABEL]
    whole = pd.concat(frames, names=["part"])
    features = []
    for name in fields:
        whole[name] = LabelEncoder().fit_transform(whole[name])
        features.append(SparseFeature(name, vocab_size=len(set(whole[name])), embed_dim=EMBEDDING_DIM))
    loaders = {part: loader(whole.loc[part], fields, part) for part in job.files}
    model = DeepFM(features, features, NETWORK)
    trainer = CTRTrainer(model, model_path=str(job.folder), **SETTINGS)
    model.load_state_dict(best_weights(job, trainer, loaders))
    test = trainer.evaluate(model, loaders["test"])
    job.finish(test, {**SETTINGS, **NETWORK, "batch_size": BATCH_SIZE, "embedding_dim": EMBEDDING_DIM})


def loader(frame: pd.DataFrame, fields: list[str], part: str) -> Any:
    """Batches of a part; the training part's in an order that changes."""
    x = {name: frame[name].to_numpy() for name in fields}
    made = DataGenerator(x, frame[LABEL].to_numpy())
    train, _, _ = made.generate_dataloader(x_val=x, y_val=frame[LABEL].to_numpy(), batch_size=BATCH_SIZE)
    if part == "train":
        return train
    return torch.utils.data.DataLoader(train.dataset, batch_size=BATCH_SIZE, shuffle=False)


def best_weights(job: Job, trainer: Any, loaders: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Train epoch by epoch; where one is no better the step size falls, and after a few of them it ends."""
    best, weights, worse = 0.0, {}, 0
    while worse < PATIENCE and not job.is_over:
        trainer.train_one_epoch(loaders["train"])
        quality = trainer.evaluate(trainer.model, loaders["validation"])
        job.reached(quality)
        if quality > best:
            best, weights, worse = quality, copy.deepcopy(trainer.model.state_dict()), 0
        else:
            worse += 1
            for group in trainer.optimizer.param_groups:
                group["lr"] /= 10
    return weights


if __name__ == "__main__":
    main()
