"""DeepCTR-Torch's DeepFM with the sizes, batch and step size that BARS publishes for Frappe_x1.

Its penalty is its own default, by which it reaches more: by hand, BARS' .05 on the mean, as a half of it times the
batch size on the sums of its loss, kept it at a validation AUC of .939. What is read is encoded as its documentation
does, with scikit-learn's label encoder over all parts.
"""
# pyright: reportMissingImports=false

import copy
from typing import Any

import pandas as pd
import torch
from deepctr_torch.callbacks import Callback
from deepctr_torch.inputs import SparseFeat, get_feature_names
from deepctr_torch.models import DeepFM
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import LabelEncoder

from benchmarks.time_to_quality.rivals.job import Job, read_job

LABEL = "label"
BATCH_SIZE = 4096
SETTINGS: dict[str, Any] = {
    "dnn_hidden_units": (400, 400, 400),
    "dnn_dropout": 0.2,
    "dnn_use_bn": True,
    "l2_reg_embedding": 1e-5,
    "l2_reg_linear": 1e-5,
}
EMBEDDING_DIM, LEARNING_RATE, PATIENCE = 10, 1e-3, 2


class BestEpoch(Callback):
    """Keeps the best weights, lowers the step size where an epoch is no better, and stops after a few of them.

    Args:
        job: What is asked for.
    """

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job, self.best, self.weights, self.worse = job, 0.0, {}, 0

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Look at the validation part's AUC."""
        quality = (logs or {})["val_auc"]
        self.job.reached(quality)
        if quality > self.best:
            self.best, self.weights, self.worse = quality, copy.deepcopy(self.model.state_dict()), 0
        else:
            self.worse += 1
            for group in self.model.optim.param_groups:
                group["lr"] /= 10
        self.model.stop_training = self.worse >= PATIENCE or self.job.is_over


def main() -> None:
    """Prepare, train, keep the best epoch, score the test part."""
    job = read_job()
    torch.set_num_threads(job.threads)
    frames = {part: pd.read_csv(path) for part, path in job.files.items()}
    fields = [name for name in frames["train"].columns if name != LABEL]
    whole = pd.concat(frames, names=["part"])
    counts = {}
    for name in fields:
        whole[name] = LabelEncoder().fit_transform(whole[name])
        counts[name] = len(set(whole[name]))
    columns = [SparseFeat(name, counts[name], embedding_dim=EMBEDDING_DIM) for name in fields]
    inputs = {
        part: {name: whole.loc[part][name].to_numpy() for name in get_feature_names(columns)} for part in job.files
    }
    labels = {part: whole.loc[part][LABEL].to_numpy(dtype="float32") for part in job.files}
    model = DeepFM(columns, columns, task="binary", device="cpu", seed=job.seed, **SETTINGS)
    model.compile(torch.optim.Adam(model.parameters(), lr=LEARNING_RATE), "binary_crossentropy", metrics=["auc"])
    best = BestEpoch(job)
    model.fit(
        inputs["train"],
        labels["train"],
        batch_size=BATCH_SIZE,
        epochs=job.max_epochs,
        verbose=0,
        validation_data=(inputs["validation"], labels["validation"]),
        callbacks=[best],
    )
    model.load_state_dict(best.weights)
    test = roc_auc_score(labels["test"], model.predict(inputs["test"], BATCH_SIZE))
    job.finish(test, {**SETTINGS, "batch_size": BATCH_SIZE, "embedding_dim": EMBEDDING_DIM, "lr": LEARNING_RATE})


if __name__ == "__main__":
    main()
