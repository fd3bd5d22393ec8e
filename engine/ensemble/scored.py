"""What a finished model predicts for the test part, kept beside it: several steps ask for it, and it is scored once."""

import contextlib
import hashlib
from pathlib import Path

import numpy as np

from engine.checkpoint.storage import load_model
from engine.config import Execution
from engine.data.dataset import Dataset
from engine.data.loader import BatchLoader
from engine.loop.evaluation import evaluate, scored_as
from engine.results import Evaluation


def score_test(directory: Path, dataset: Dataset, execution: Execution) -> Evaluation:
    """Score the model in a folder on the test part, or read what an earlier call has kept there.

    Args:
        directory: Folder of the model, from `engine.checkpoint.storage.save_model`.
        dataset: Data set.
        execution: Device and precision of the scoring.

    Raises:
        CheckpointError: A file of the model is damaged.
        DataError: An array cannot be read.
    """
    kept = directory / f"test-{_key(directory, dataset, execution)}.npy"
    with contextlib.suppress(OSError, ValueError):  # not there, or cut short
        logits = np.load(kept)
        return scored_as(dataset, BatchLoader(dataset, "test", execution.batch_size).targets(), logits)
    evaluation = evaluate(
        load_model(directory, execution.device, is_mapped=execution.maps_tables), dataset, "test", execution
    )
    with contextlib.suppress(OSError):  # without room on the disk it is scored again
        part = kept.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, evaluation.logits)
        part.replace(kept)
    return evaluation


def _key(directory: Path, dataset: Dataset, execution: Execution) -> str:
    """Names the data, the arithmetic and the weights, whose checksum is in the model's description."""
    named = f"{dataset.fingerprint} {execution.device} {execution.precision} ".encode()
    return hashlib.sha256(named + (directory / "model.json").read_bytes()).hexdigest()[:16]
