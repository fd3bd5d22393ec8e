"""Second ingestion pass: encodes the spilled rows into the arrays of the splits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.engine.data.dataset import SPLITS
from shunter.ingestion.batch import Columns
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.split import row_hashes
from shunter.ingestion.encoding.value_statistics import OutOfFold
from shunter.ingestion.encoding.vocabulary import mix
from shunter.ingestion.spill import Spill, SpilledBatch, SpilledRows
from shunter.ingestion.survey import Survey
from shunter.ingestion.workers import Crew, on_crew
from shunter.ingestion.writer import DatasetWriter, Place, WrittenRows
from shunter.models.spec import Features
from shunter.parallel import ordered_map

ENCODER_FOLDER = "encoder"
MOST_COMPARED = 2_000_000  # rows whose hashes are compared; a longer log is sampled by the hashes
Hashes = list[NDArray[np.uint64]]  # hashes of the compared rows of each split


@dataclass(frozen=True)
class Target:
    """Description of the arrays to write.

    Attributes:
        directory: Folder of the data set, which holds the encoder.
        features: Features of a row.
        is_weighted: Whether rows have weights.
        timed: Splits whose rows are stored with their times.
        user_column: Index, among the single-valued columns, of the column with users or other groups; None if absent.
        folds: Target encodings of the training rows, out of fold.
        compared_share: Share of the rows, 0 to 1, whose hashes are compared with those of the training split.
    """

    directory: Path
    features: Features
    is_weighted: bool
    timed: tuple[str, ...] = ()
    user_column: int | None = None
    folds: tuple[OutOfFold, ...] = ()
    compared_share: float = 0.0

    def writer(self, places: list[Place] | None = None) -> DatasetWriter:
        """Open the arrays for writing: existing arrays from the positions `places` on, or new arrays if None."""
        return DatasetWriter(
            self.directory,
            self.features,
            is_weighted=self.is_weighted,
            timed=self.timed,
            has_users=self.user_column is not None,
            places=places,
        )


def encode_in_threads(
    batches: Iterable[SpilledBatch], encoder: Encoder, target: Target, on_rows: Callable[[int], None]
) -> dict[str, float]:
    """Encode the batches in threads of this process; call `on_rows` with the number of rows written so far.

    Returns:
        Share of the validation and of the test rows that repeat training rows, by split; empty if none is compared.
    """
    rows, compared = 0, list[Hashes]()
    with target.writer() as writer:
        for parts, hashes in ordered_map(partial(_encode, target, encoder), batches):
            writer.append(parts)
            compared.append(hashes)
            rows += sum(len(part.labels) for part in parts)
            on_rows(rows)
    return _repeated_shares(compared)


def encode_with_crew(
    crew: Crew, spill: Spill, found: Survey, target: Target, on_rows: Callable[[int], None]
) -> dict[str, float]:
    """Encode unit by unit with a crew, each unit into its range of the arrays.

    Callback and result are those of `encode_in_threads`.
    """
    *starts, size = _places(found, target.features)
    with target.writer() as writer:
        writer.reserve(size)
    work = on_crew(crew, partial(_prepared, target), _encode_unit)
    rows, compared = 0, list[Hashes]()
    for unit_rows, hashes in ordered_map(work, zip(spill.units, starts, strict=True), workers=crew.count):
        rows += unit_rows
        compared += hashes
        on_rows(rows)
    return _repeated_shares(compared)


def _places(found: Survey, features: Features) -> list[list[Place]]:
    """Return the start of each unit in the arrays of each split, followed by the total size of each split."""
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


def _encode_unit(prepared: tuple[Target, Encoder], unit: tuple[SpilledRows, list[Place]]) -> tuple[int, list[Hashes]]:
    """Write the rows of one unit to their places; return the number of rows and the hashes of the compared rows."""
    (target, encoder), (spilled, places) = prepared, unit
    rows, compared = 0, list[Hashes]()
    with target.writer(places) as writer:
        for batch in spilled.read():
            parts, hashes = _encode(target, encoder, batch)
            writer.append(parts)
            compared.append(hashes)
            rows += len(batch.labels)
    return rows, compared


def _encode(target: Target, encoder: Encoder, batch: SpilledBatch) -> tuple[list[WrittenRows], Hashes]:
    """Return the encoded rows of each split, and the hashes of the compared rows of each split."""
    encoded = encoder.encode_columns(batch.columns)
    if target.folds:
        training = batch.parts == 0
        columns = Columns(batch.columns.numeric[:, training], batch.columns.keys[:, training], [])
        for one in target.folds:
            encoded.dense[training, target.features.dense.index(one.statistic.name)] = one.encode(columns)
    chosen: list[NDArray[np.bool_]] = [batch.parts == part for part in range(len(SPLITS))]
    weights, times = batch.weights, batch.times
    users = None if target.user_column is None else batch.columns.keys[target.user_column]
    written = [
        WrittenRows(
            batch.labels[rows],
            encoded.select(rows),
            None if weights is None else weights[rows],
            None if times is None else times[rows],
            None if users is None else users[rows],
        )
        for rows in chosen
    ]
    if not target.compared_share:
        return written, []
    labels = batch.labels if batch.labels.ndim == 1 else batch.labels[:, 0]
    of_labels = np.where(np.isin(labels, (0, 1)), labels, labels.astype(np.float32).view(np.uint32)).astype(np.uint64)
    hashes = mix(row_hashes(batch.columns, seed=0) + of_labels)
    is_compared = (hashes >> np.uint64(11)) * 2.0**-53 < target.compared_share
    return written, [hashes[rows & is_compared] for rows in chosen]


def _repeated_shares(compared: list[Hashes]) -> dict[str, float]:
    compared = [hashes for hashes in compared if hashes]
    if not compared:
        return {}
    training, *others = (np.concatenate(of_split) for of_split in zip(*compared, strict=True))
    shares = {name: np.isin(hashes, training) for name, hashes in zip(SPLITS[1:], others, strict=True)}
    return {name: float(share.mean()) for name, share in shares.items() if len(share)}
