"""Partitions of the fields into towers that a search tries; see `shunter.extensions.towers.tower_partitioner`."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import mean_ids_per_sample
from shunter.engine.execution import execution_of
from shunter.extensions.towers.dmt import DmtSpec, towers_of
from shunter.extensions.towers.field_interactions import MOST_PASSES, field_interactions
from shunter.extensions.towers.tower_modules import Towers
from shunter.extensions.towers.tower_partitioner import Strategy, TowerPartition, partition_fields
from shunter.hardware.types import Placement
from shunter.requests import TowerStrategy, TrainRequest
from shunter.search.space.settings import TowerFields
from shunter.tracking.runs import Run

FILE = "towers.json"
LEARNED: tuple[Strategy, ...] = ("coherent", "diverse")
log = logging.getLogger(__name__)


def tower_partitions(
    dataset: Dataset, request: TrainRequest, placement: Placement, directory: Path, run: Run
) -> dict[str, TowerFields]:
    """Return the names of the fields of each tower, for every partition that the request allows.

    Learned towers need a brief training run of a flat model once per search; the towers are stored in the search's
    folder.

    Args:
        dataset: Data set; only its training part is read.
        request: Model family, number of towers, strategy of the towers, seed.
        placement: Placement of the training of the flat model.
        directory: Folder of the search.
        run: Run whose tag records the towers.

    Raises:
        RequestError: There are more towers than fields.
    """
    features = dataset.features
    by_order = towers_of(DmtSpec(towers=request.architecture.towers), features)
    names = [field.name for field in features.categorical]
    ways = (
        list(TowerStrategy)[1:]
        if request.search.tower_partition is TowerStrategy.AUTO
        else [request.search.tower_partition]
    )
    if len(by_order) in (1, len(names)):
        ways = [TowerStrategy.ORDER]  # there is only one partition
    found = {TowerStrategy.ORDER.value: _named(by_order, names)}
    if set(ways) - {TowerStrategy.ORDER}:
        found.update(_learned(dataset, request, placement, len(by_order), directory=directory, run=run))
    return {way.value: found[way.value] for way in ways}


def _learned(
    dataset: Dataset, request: TrainRequest, placement: Placement, towers: int, *, directory: Path, run: Run
) -> dict[str, TowerFields]:
    """Return the coherent and the diverse towers, from the search's folder if they are stored there."""
    path = directory / FILE
    kept = read_or_quarantine(path, json_object)
    if kept is not None:
        return {way: tuple(tuple(tower) for tower in fields) for way, fields in kept.items()}
    names = [field.name for field in dataset.features.categorical]
    log.info("Training a flat model for at most %d passes, to learn which fields share a tower", MOST_PASSES)
    execution = execution_of(placement)
    if placement.node is not None:  # the training is too brief to be worth a transfer to another machine
        execution = replace(execution, device="cpu", precision="fp32")
    interaction = field_interactions(dataset, execution, seed=request.seed)
    ids = mean_ids_per_sample(dataset)
    loads = [ids[name] for name in names] if len(set(ids.values())) > 1 else None
    found: dict[str, TowerFields] = {}
    for strategy in LEARNED:
        partition = partition_fields(interaction, towers, strategy=strategy, loads=loads, seed=request.seed)
        found[strategy] = _named(partition.towers, names)
        text = _format_partition(partition, found[strategy])
        log.info("%s towers: %s", strategy.capitalize(), text)
        run.set_tags({f"towers.{strategy}": text})
    write_checked(path, json.dumps(found))
    return found


def _named(towers: Towers, names: Sequence[str]) -> TowerFields:
    return tuple(tuple(names[position] for position in tower) for tower in towers)


def _format_partition(partition: TowerPartition, fields: TowerFields) -> str:
    """Format the towers, and how strongly their fields interact, for the log."""
    together = " | ".join(", ".join(tower) for tower in fields)
    return f"{together} (mean interaction {partition.within:.3f} within, {partition.between:.3f} between)"
