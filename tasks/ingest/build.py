"""Building a data set: a first pass to fit the encoder, a second one to encode and write."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.dataset import SPLITS, Dataset
from shunter.errors import DataError
from tasks.ingest.batch import Source
from tasks.ingest.criteo import CriteoSource
from tasks.ingest.encoder import EncodedRows, Encoder
from tasks.ingest.parallel import ordered_map
from tasks.ingest.split import HashSplit, Splitter, TimeSplit
from tasks.ingest.survey import survey
from tasks.ingest.synthetic import SyntheticSource
from tasks.ingest.tabular import CsvSource, ParquetSource, only_time
from tasks.ingest.writer import DatasetWriter, Quarantine

ENCODER_FOLDER = "encoder"


def build(source: Source, directory: Path, fingerprint: str, seed: int, max_bad_share: float) -> Dataset:
    """Ingest `source` into the empty folder `directory`.

    Raises:
        DataError: the source cannot be read, has too many bad rows, or cannot be learned from.
    """
    splitter = make_splitter(source, seed)
    quarantine = Quarantine(directory / "quarantine.csv")
    found = survey(source, splitter, quarantine)
    quarantine.check(int(found.rows.sum()), max_bad_share)
    found.check(source.name)
    key_kind = "hexadecimal" if isinstance(source, CriteoSource | SyntheticSource) else "text"
    encoder, fields = found.encoder(key_kind)
    encoder.save(directory / ENCODER_FOLDER)
    written = _encode(source, splitter, encoder, directory)
    if not np.array_equal(written, found.rows):
        raise DataError(f"{source.name} changed while it was read: ingest it again when nothing writes to it.")
    dataset = Dataset(
        name=source.name,
        directory=directory,
        fingerprint=fingerprint,
        features=encoder.features,
        splits=found.split_statistics(),
        split_by=splitter.kind,
        fields=fields,
        quarantined_rows=quarantine.rows,
    )
    dataset.save()
    return dataset


def make_splitter(source: Source, seed: int) -> Splitter:
    """Split by time where the schema names one (which takes a pass over that column), else by hash."""
    if source.schema.time is None:
        return HashSplit(source.schema.split, seed)
    assert isinstance(source, CsvSource | ParquetSource)
    column = only_time(source)
    batches = ordered_map(column.parse, column.chunks())
    return TimeSplit.fit((batch.times for batch in batches if batch.times is not None), source.schema.split)


def _encode(source: Source, splitter: Splitter, encoder: Encoder, directory: Path) -> NDArray[np.int64]:
    """Make the second pass; returns the rows written to each split."""

    def work(chunk: object) -> list[tuple[NDArray[np.float32], EncodedRows]]:
        batch = source.parse(chunk)
        parts = splitter.assign(batch)
        encoded = encoder.encode_columns(batch.columns)
        return [(batch.labels[parts == part], encoded.select(parts == part)) for part in range(len(SPLITS))]

    written = np.zeros(len(SPLITS), np.int64)
    with DatasetWriter(directory, encoder.features) as writer:
        for parts in ordered_map(work, source.chunks()):
            writer.append(parts)
            written += [len(labels) for labels, _ in parts]
    return written
