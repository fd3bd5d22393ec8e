"""Distillation of an ensemble into one model: training labels are mixed with the ensemble's probabilities.

Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015. The log loss is linear in the label. The
mean of the losses to the label and to the teacher's probability is therefore the loss to the mean of both, and the
trainer needs no change. Validation and test parts keep their labels.
"""

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from shunter.checked_folder import MANIFEST, is_sealed, seal_folder, verify_file
from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.config import Execution
from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import DESCRIPTION, Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.errors import DamagedFileError, DataError
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model

TEACHER_SHARE = 0.5  # share of the teacher's probability in a training label
LABELS = "train.label.npy"


def softened(
    dataset: Dataset, teacher: Path, model: Model | Ensemble, execution: Execution, directory: Path
) -> Dataset:
    """Return the data set with training labels mixed with a teacher's predictions; it is created once.

    Args:
        dataset: Data set; all its arrays except the training labels are linked.
        teacher: Folder of the teacher, whose checksum is part of the new fingerprint.
        model: Teacher, on the device of the scoring.
        execution: Device, threads and precision of the scoring.
        directory: Folder of the new data set.

    Raises:
        DataError: An array cannot be read, or there is no room for the labels.
        CheckpointError: The teacher's description is damaged.
    """
    named = f"{dataset.fingerprint} {read_json(teacher / 'model.json').get('sha256')} {TEACHER_SHARE}"
    made = replace(dataset, directory=directory, fingerprint=hashlib.sha256(f"softened {named}".encode()).hexdigest())
    with contextlib.suppress(OSError, DataError, DamagedFileError):  # it is made anew
        if is_sealed(directory):
            verify_file(directory / LABELS)
            if Dataset.load(directory).fingerprint == made.fingerprint:
                return made
    found = evaluate(model, dataset, "train", execution)
    shares = 1 / (1 + np.exp(-found.logits.astype(np.float64)))
    hard = read_array(dataset.directory / LABELS)  # NaN for a missing label, which stays NaN
    labels = (TEACHER_SHARE * shares + (1 - TEACHER_SHARE) * hard).astype(np.float32)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in dataset.directory.iterdir():
            if path.name in (LABELS, DESCRIPTION, MANIFEST):
                continue
            link = directory / path.name
            link.unlink(missing_ok=True)
            link.symlink_to(path.resolve())
        np.save(directory / LABELS, labels)
        made.save()
        seal_folder(directory, (LABELS, DESCRIPTION))
    except OSError as error:
        raise DataError(
            f"The predictions of the ensemble cannot be written to {directory} ({error.strerror}): check "
            "the folder and its free space."
        ) from error
    return made
