"""Cache of a finished model's predictions for a split, stored beside the model and shared by several steps."""

import contextlib
import hashlib
import shutil
from pathlib import Path

import numpy as np
import torch

from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.config import Execution
from shunter.engine.data.arrays import read_result, write_result
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.evaluation import evaluate, scored_as
from shunter.engine.results import Evaluation
from shunter.hardware.devices.discovery import usable_cores

MOST_AT_ONCE = 8  # batches in memory


def idle_batches(execution: Execution) -> int:
    """Return how many batches the cores can score at the same time if nothing else runs."""
    if torch.device(execution.device).type != "cpu" or execution.embedding_memory_bytes is not None:
        return 1  # tables in files load the rows of one batch at a time
    return max(1, min(usable_cores() // execution.threads, MOST_AT_ONCE))


def score_test(directory: Path, dataset: Dataset, execution: Execution) -> Evaluation:
    """Score the model in a folder on the test part, or read the stored scores of an earlier call.

    Args:
        directory: Folder of the model, from `shunter.engine.checkpoint.storage.save_model`.
        dataset: Data set.
        execution: Device and precision of the scoring.

    Raises:
        CheckpointError: A file of the model is damaged.
        DataError: An array cannot be read.
    """
    kept = read_scores(directory, dataset, "test", execution)
    if kept is not None:
        return kept
    model = load_to_score(directory, execution)
    evaluation = evaluate(model, dataset, "test", execution, at_once=idle_batches(execution))
    store_scores(directory, dataset, "test", execution, evaluation.logits)
    return evaluation


def read_scores(directory: Path, dataset: Dataset, split: SplitName, execution: Execution) -> Evaluation | None:
    """Return the stored scores of the model in a folder; None if there are none for its current weights."""
    logits = read_result(_path(directory, dataset, split, execution))
    if logits is None:
        return None
    return scored_as(dataset, BatchLoader(dataset, split, execution.batch_size).targets(), logits)


def store_scores(directory: Path, dataset: Dataset, split: SplitName, execution: Execution, logits: np.ndarray) -> None:
    """Store the predictions of the model in a folder for a split; without disk space nothing is stored.

    Args:
        directory: Folder of the model.
        dataset: Data set.
        split: Split that was scored.
        execution: Device and precision of the scoring.
        logits: float32, as in `Evaluation`.
    """
    with contextlib.suppress(OSError):
        write_result(_path(directory, dataset, split, execution), logits)


def copy_scores(source: Path, target: Path, dataset: Dataset, split: SplitName, execution: Execution) -> None:
    """Copy the stored scores of a model to the folder of its copy, if there are any."""
    with contextlib.suppress(OSError):
        shutil.copyfile(_path(source, dataset, split, execution), _path(target, dataset, split, execution))


def _path(directory: Path, dataset: Dataset, split: SplitName, execution: Execution) -> Path:
    """Return the file of scores, named by data, device, precision and description, with the checksum of the weights."""
    named = f"{dataset.fingerprint} {execution.device} {execution.precision} ".encode()
    key = hashlib.sha256(named + (directory / "model.json").read_bytes()).hexdigest()[:16]
    return directory / f"{split}-{key}.npy"
