"""How strongly the fields of a data set interact: what a flat model has learned of them after a brief training."""

import math
from itertools import count, islice

import torch
from torch import Tensor

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied, build_dense_optimizer, prefetch, seeded, train_step
from shunter.engine.memory import check_tables_fit
from shunter.models.registry import build_model, model_spec
from shunter.models.tower_partitioner import interactions

FLAT = model_spec()  # a DLRM: all fields meet each other
FAST = Hyperparameters(dense_learning_rate=2e-3, embedding_learning_rate=0.05)  # for the best model is not asked for
MOST_SAMPLES, MOST_PASSES = 1 << 19, 4  # learned from, before the interactions are read
PROBE_SAMPLES = 1 << 13  # in which they are read


def field_interactions(dataset: Dataset, execution: Execution, *, seed: int = 0) -> Tensor:
    """Train a flat model for four passes, or half a million samples, and read the fields' interactions.

    Args:
        dataset: the data; only the training part is touched.
        execution: Device, threads, precision and batch size.
        seed: Seed of the initial weights and the order of batches.

    Returns:
        `[fields, fields]`, see `shunter.models.tower_partitioner.interactions`.

    Raises:
        RequestError: the model does not fit into memory.
        HardwareError: the device cannot be used here.
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
