"""Partitions of the fields into towers for a search; see `shunter.extensions.towers.tower_partitioner`."""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import torch
from torch import Tensor

from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader, mean_ids_per_sample
from shunter.engine.execution import execution_of
from shunter.engine.loop.step import applied, build_dense_optimizer, prefetch, seeded, train_step
from shunter.engine.memory import check_tables_fit
from shunter.extensions.towers.dmt import DmtSpec, Towers, towers_of
from shunter.extensions.towers.tower_partitioner import Strategy, interactions, partition_fields
from shunter.hardware.types import Placement
from shunter.models.registry import build_model, model_spec
from shunter.requests import TowerStrategy, TrainRequest
from shunter.search.space.settings import TowerFields
from shunter.tracking.runs import Run

FILE = "towers.json"
LEARNED: tuple[Strategy, ...] = ("coherent", "diverse")
FLAT = model_spec()  # a DLRM, in which all pairs of fields interact
FAST = Hyperparameters(dense_learning_rate=2e-3, embedding_learning_rate=0.05)  # high rates for a brief training
MOST_SAMPLES, MOST_PASSES = 1 << 19, 4  # limits of the training
PROBE_SAMPLES = 1 << 13  # number of samples on which the interactions are measured
log = logging.getLogger(__name__)


def tower_partitions(
    dataset: Dataset, request: TrainRequest, placement: Placement, directory: Path, run: Run
) -> dict[str, TowerFields]:
    """Return the names of the fields of each tower, for every partition that the request allows.

    Learned towers need a brief training run of a flat model, which has no towers, once per search; the towers are
    stored in the search's folder.

    Args:
        dataset: Data set; only its training part is read.
        request: Model family, number of towers, strategy of the towers, seed.
        placement: Placement of the training of the flat model.
        directory: Folder of the search.
        run: MLflow run whose tag records the towers.

    Raises:
        RequestError: There are more towers than fields.
    """
    features = dataset.features
    by_order = towers_of(DmtSpec(towers=request.architecture.towers), features)
    names = [field.name for field in features.categorical]
    wanted = request.search.tower_partition
    ways = list(TowerStrategy)[1:] if wanted is TowerStrategy.AUTO else [wanted]
    if len(by_order) in (1, len(names)):
        ways = [TowerStrategy.ORDER]  # there is only one partition
    found = {TowerStrategy.ORDER.value: _named(by_order, names)}
    if set(ways) - {TowerStrategy.ORDER}:
        found.update(_learned(dataset, request, placement, len(by_order), directory=directory, run=run))
    return {way.value: found[way.value] for way in ways}


def _learned(
    dataset: Dataset, request: TrainRequest, placement: Placement, towers: int, *, directory: Path, run: Run
) -> dict[str, TowerFields]:
    """Return the learned partitions `coherent` and `diverse`: fields of each tower, read from `directory` if stored."""
    path = directory / FILE
    kept = read_or_quarantine(path, json_object)
    if kept is not None:
        return {way: tuple(tuple(tower) for tower in fields) for way, fields in kept.items()}
    names = [field.name for field in dataset.features.categorical]
    log.info("Training a flat model for at most %d passes, to learn which fields share a tower", MOST_PASSES)
    execution = execution_of(placement)
    if placement.node is not None:  # the training is too brief for a transfer to another machine
        execution = replace(execution, device="cpu", precision="fp32")
    interaction = field_interactions(dataset, execution, seed=request.seed)
    ids = mean_ids_per_sample(dataset)
    loads = [ids[name] for name in names] if len(set(ids.values())) > 1 else None
    found: dict[str, TowerFields] = {}
    for strategy in LEARNED:
        partition = partition_fields(interaction, towers, strategy=strategy, loads=loads, seed=request.seed)
        found[strategy] = _named(partition.towers, names)
        together = " | ".join(", ".join(tower) for tower in found[strategy])
        text = f"{together} (mean interaction {partition.within:.3f} within, {partition.between:.3f} between)"
        log.info("%s towers: %s", strategy.capitalize(), text)
        run.set_tags({f"towers.{strategy}": text})
    write_checked(path, json.dumps(found))
    return found


def _named(towers: Towers, names: Sequence[str]) -> TowerFields:
    return tuple(tuple(names[position] for position in tower) for tower in towers)


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
        learning = FAST.embedding_learning
        model = build_model(FLAT, dataset.features, seed=seed, embedding_learning=learning, device=device).train()
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
