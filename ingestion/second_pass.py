"""The second pass: from the spilled rows to the arrays of the splits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.engine.data.dataset import SPLITS
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.parallel import ordered_map
from shunter.ingestion.spill import Spill, SpilledBatch, SpilledRows
from shunter.ingestion.survey import Survey
from shunter.ingestion.workers import Crew, on_crew
from shunter.ingestion.writer import DatasetWriter, Place, WrittenRows
from shunter.models.spec import Features

ENCODER_FOLDER = "encoder"


@dataclass(frozen=True)
class Target:
    """The arrays that are written.

    Attributes:
        directory: Folder of the data set, which holds its encoder.
        features: What a row holds.
        is_weighted: Whether rows have weights.
        is_timed: Whether rows have times.
    """

    directory: Path
    features: Features
    is_weighted: bool
    is_timed: bool = False

    def writer(self, places: list[Place] | None = None) -> DatasetWriter:
        """Opens the arrays."""
        return DatasetWriter(
            self.directory, self.features, is_weighted=self.is_weighted, is_timed=self.is_timed, places=places
        )


def encode_here(
    batches: Iterable[SpilledBatch], encoder: Encoder, target: Target, on_rows: Callable[[int], None]
) -> None:
    """Encode one batch after the other, in threads; `on_rows` is told how many rows are done."""
    rows = 0
    with target.writer() as writer:
        for parts in ordered_map(partial(_encode, encoder), batches):
            writer.append(parts)
            rows += sum(len(part.labels) for part in parts)
            on_rows(rows)


def encode_by(crew: Crew, spill: Spill, found: Survey, target: Target, on_rows: Callable[[int], None]) -> None:
    """Let a crew encode unit by unit, each into its place of the arrays; `on_rows` is told how many rows are done."""
    *starts, size = _places(found, target.features)
    with target.writer() as writer:
        writer.reserve(size)
    work = on_crew(crew, partial(_prepared, target), _encode_unit)
    rows = 0
    for unit_rows in ordered_map(work, zip(spill.units, starts, strict=True), workers=crew.count):
        rows += unit_rows
        on_rows(rows)


def _places(found: Survey, features: Features) -> list[list[Place]]:
    """Where each unit begins in each split, and at the end where they all end."""
    columns = [column.column for column in found.schema.bags]
    order = [columns.index(feature.name) for feature in features.categorical if feature.multi_valued]
    rows = [sum((chunk.rows for chunk in unit), np.zeros(len(SPLITS), np.int64)) for unit in found.units]
    no_values = np.zeros((len(SPLITS), len(columns)), np.int64)
    values = [sum((chunk.bag_values for chunk in unit), no_values)[:, order] for unit in found.units]
    rows_before = accumulate(rows, add, initial=np.zeros(len(SPLITS), np.int64))
    values_before = accumulate(values, add, initial=no_values[:, order])
    return [
        [Place(int(count), tuple(map(int, bags))) for count, bags in zip(split_rows, split_values, strict=True)]
        for split_rows, split_values in zip(rows_before, values_before, strict=True)
    ]


def _prepared(target: Target) -> tuple[Target, Encoder]:
    return target, Encoder.load(target.directory / ENCODER_FOLDER)


def _encode_unit(prepared: tuple[Target, Encoder], unit: tuple[SpilledRows, list[Place]]) -> int:
    """Write one unit's rows to their places, and say how many they are."""
    (target, encoder), (spilled, places) = prepared, unit
    rows = 0
    with target.writer(places) as writer:
        for batch in spilled.read():
            writer.append(_encode(encoder, batch))
            rows += len(batch.labels)
    return rows


def _encode(encoder: Encoder, batch: SpilledBatch) -> list[WrittenRows]:
    """The rows of each split."""
    encoded = encoder.encode_columns(batch.columns)
    chosen: list[NDArray[np.bool_]] = [batch.parts == part for part in range(len(SPLITS))]
    weights, times = batch.weights, batch.times
    return [
        WrittenRows(
            batch.labels[rows],
            encoded.select(rows),
            None if weights is None else weights[rows],
            None if times is None else times[rows],
        )
        for rows in chosen
    ]
