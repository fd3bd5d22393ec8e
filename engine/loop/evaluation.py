"""Evaluation of a model on a split of a data set."""

import numpy as np
import torch
from torch import nn

from shunter.engine.config import Execution
from shunter.engine.data.batch import Targets
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied, autocast, prefetch
from shunter.engine.metrics import compute_task_metrics
from shunter.engine.results import Evaluation

# Scoring stores no activations for a backward pass, so that batches larger than in training fit into memory.
SMALLEST_BATCH = 4_096


@torch.no_grad()
def evaluate(model: nn.Module, dataset: Dataset, split: SplitName, execution: Execution) -> Evaluation:
    """Score every row of a split, in order, and compute its metrics.

    Args:
        model: Model or ensemble, on the device of `execution`; its training or evaluation mode is restored afterwards.
        dataset: Data set.
        split: `train`, `validation` or `test`.
        execution: Device, threads and precision; the batch size is raised to at least 4,096.

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
            position = 0
            for batch in batches:
                rows = slice(position, position + len(batch))
                with autocast(device, execution.precision):
                    scored = model(*batch.inputs)
                logits[rows] = scored.float().cpu().numpy()
                position = rows.stop
    finally:
        model.train(was_training)
    return scored_as(dataset, targets, logits)


def scored_as(dataset: Dataset, targets: Targets, logits: np.ndarray) -> Evaluation:
    """Return the evaluation of a split: its labels, weights and logits, and the metrics computed from them."""
    labels, weights = targets.labels, targets.weights
    metrics = compute_task_metrics(dataset.features.tasks, labels, logits, weights, dataset.features.number)
    return Evaluation(metrics=metrics, labels=labels, logits=logits, weights=weights)
