"""Evaluation of a model on a split of a data set."""

import numpy as np
import torch
from torch import nn

from shunter.engine.config import Execution
from shunter.engine.data.batch import Batch, Targets
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied, autocast, prefetch
from shunter.engine.metrics import compute_task_metrics
from shunter.engine.results import Evaluation
from shunter.parallel import ordered_map

# Scoring stores no activations for a backward pass, so that batches larger than in training fit into memory.
SMALLEST_BATCH = 4_096


def evaluate(
    model: nn.Module, dataset: Dataset, split: SplitName, execution: Execution, *, at_once: int = 1
) -> Evaluation:
    """Score every row of a split, in order, and compute its metrics.

    Args:
        model: Model or ensemble, on the device of `execution`; its training or evaluation mode is restored afterwards.
        dataset: Data set.
        split: `train`, `validation` or `test`.
        execution: Device, threads and precision; the batch size is raised to at least 4,096.
        at_once: Batches that are scored at the same time, each with the threads of `execution`; the scores do not
            depend on it.

    Raises:
        DataError: An array cannot be read, or an id is outside its table.
    """
    loader = BatchLoader(dataset, split, max(execution.batch_size, SMALLEST_BATCH))
    targets = loader.targets()
    logits = np.empty(targets.labels.shape, dtype=np.float32)
    was_training = model.training
    model.eval()
    try:
        with applied(execution) as device, prefetch(loader.batches(), execution) as batches:

            def score(batch: Batch) -> np.ndarray:
                with torch.no_grad(), autocast(device, execution.precision):  # both hold for one thread only
                    return model(*batch.inputs).float().cpu().numpy()

            position = 0
            for scored in map(score, batches) if at_once == 1 else ordered_map(score, batches, workers=at_once):
                logits[position : position + len(scored)] = scored
                position += len(scored)
    finally:
        model.train(was_training)
    return scored_as(dataset, targets, logits)


def scored_as(dataset: Dataset, targets: Targets, logits: np.ndarray) -> Evaluation:
    """Return the evaluation of a split: its labels, weights and logits, and the metrics computed from them."""
    labels, weights = targets.labels, targets.weights
    metrics = compute_task_metrics(dataset.features.tasks, labels, logits, weights, dataset.features.number)
    return Evaluation(metrics=metrics, labels=labels, logits=logits, weights=weights)
