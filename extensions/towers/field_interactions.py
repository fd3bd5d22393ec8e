"""Strength of the interactions between the fields of a data set, measured on a briefly trained flat model."""

import math
from itertools import count, islice

import torch
from torch import Tensor

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied, build_dense_optimizer, prefetch, seeded, train_step
from shunter.engine.memory import check_tables_fit
from shunter.extensions.towers.tower_partitioner import interactions
from shunter.models.registry import build_model, model_spec

FLAT = model_spec()  # a DLRM: all pairs of fields interact
FAST = Hyperparameters(dense_learning_rate=2e-3, embedding_learning_rate=0.05)  # high, as the best model is not needed
MOST_SAMPLES, MOST_PASSES = 1 << 19, 4  # limits of the training
PROBE_SAMPLES = 1 << 13  # samples on which the interactions are measured


def field_interactions(dataset: Dataset, execution: Execution, *, seed: int = 0) -> Tensor:
    """Train a flat model for at most four passes and half a million samples, then measure the interactions of fields.

    Args:
        dataset: Data set; only the training part is read.
        execution: Device, threads, precision and batch size.
        seed: Seed of the initial weights and the order of batches.

    Returns:
        `[fields, fields]`, see `shunter.extensions.towers.tower_partitioner.interactions`.

    Raises:
        RequestError: The model does not fit into memory.
        HardwareError: The device is not available.
    """
    rows = dataset.splits["train"].rows
    with applied(execution) as device, seeded(seed, device):
        check_tables_fit(FLAT, dataset.features, execution)
        model = build_model(
            FLAT,
            dataset.features,
            seed=seed,
            embedding_learning=FAST.embedding_learning,
            device=device,
        ).train()
        optimizer = build_dense_optimizer(model, FAST)
        batch_size = min(execution.batch_size, rows)
        loader = BatchLoader(dataset, "train", batch_size, shuffle=True, seed=seed)
        endless = (batch for epoch in count() for batch in loader.batches(epoch=epoch))
        with prefetch(endless, execution) as batches:
            for batch in islice(batches, math.ceil(min(MOST_SAMPLES, MOST_PASSES * rows) / batch_size)):
                train_step(model, optimizer, batch, execution.precision)
            with torch.no_grad():
                probed = islice(batches, math.ceil(PROBE_SAMPLES / batch_size))
                return interactions(model.layer_inputs(*batch.inputs)[1] for batch in probed)
