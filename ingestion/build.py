"""Building a data set: a pass over the source to fit the encoder, one over its spilled rows to encode and write."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from engine.data.dataset import SPLITS, Dataset, FieldStatistics
from ingestion.batch import Source
from ingestion.encoding.encoder import Encoder
from ingestion.encoding.history import Histories
from ingestion.encoding.split import GivenSplit, HashSplit, Splitter, TimeSplit
from ingestion.parallel import ordered_map
from ingestion.sources.criteo import CriteoSource
from ingestion.sources.days import DaysSource
from ingestion.sources.parts import PartsSource
from ingestion.sources.synthetic import SyntheticSource
from ingestion.sources.tabular import CsvSource, ParquetSource
from ingestion.spill import Spill, SpilledBatch
from ingestion.survey import Survey, survey
from ingestion.timing import split_by_time
from ingestion.writer import DatasetWriter, Quarantine, WrittenRows
from models.spec import Features

ENCODER_FOLDER = "encoder"


def build(source: Source, directory: Path, fingerprint: str, seed: int, max_bad_share: float) -> Dataset:
    """Ingest `source` into the empty folder `directory`.

    Raises:
        DataError: The source cannot be read, has too many bad rows, or cannot be learned from.
    """
    source, splitter = make_splitter(source, seed, max_bad_share)
    quarantine = Quarantine(path=directory / "quarantine.csv")
    with Spill(directory / "rows.spill") as spill, Histories(directory, source.schema) as histories:
        found = survey(source, splitter, quarantine, spill, histories)
        quarantine.check(int(found.rows.sum()), max_bad_share)
        found.check(source.name, is_given=isinstance(splitter, GivenSplit))
        encoder, fields = _fit(source, found, spill, histories)
        encoder.save(directory / ENCODER_FOLDER)
        features = replace(encoder.features, tasks=source.schema.tasks)
        _encode(histories.attach(spill.read()), encoder, features, directory, is_weighted=spill.is_weighted)
    dataset = Dataset(
        name=source.name,
        directory=directory,
        fingerprint=fingerprint,
        features=features,
        splits=found.split_statistics(),
        split_by=splitter.kind,
        fields=fields,
        quarantined_rows=quarantine.rows,
        user=source.schema.user,
        item=source.schema.item,
        is_weighted=source.schema.weight is not None,
        time_range=splitter.time_range if isinstance(splitter, TimeSplit) else None,
    )
    dataset.save()
    return dataset


def make_splitter(source: Source, seed: int, max_bad_share: float) -> tuple[Source, Splitter]:
    """Split by the parts or days that are given, by the schema's time (a pass over that column), else by hash.

    Returns:
        The source, which now knows how its times are read, and the splitter.

    Raises:
        DataError: There are no rows, too many bad ones, or times that are unclear or too few to split by.
    """
    if isinstance(source, DaysSource):
        return source, source.splitter(seed)
    by_hash = HashSplit(source.schema.split, seed)
    if isinstance(source, PartsSource):
        return source, GivenSplit(source.given, by_hash)
    if source.schema.time is None and source.schema.part is None:
        return source, by_hash
    assert isinstance(source, CsvSource | ParquetSource)
    if source.schema.part is not None:
        return replace(source, schema=source.schema.without_time()), GivenSplit((1, 2), by_hash)
    return split_by_time(source, max_bad_share)


def _fit(
    source: Source, found: Survey, spill: Spill, histories: Histories
) -> tuple[Encoder, tuple[FieldStatistics, ...]]:
    """Fit the encoder over the training part, and describe the fields."""
    base = None
    if isinstance(source, DaysSource):
        key_kind, base = source.key_kind, source.base
    else:
        first = source.training if isinstance(source, PartsSource) else source
        key_kind = "hexadecimal" if isinstance(first, CriteoSource | SyntheticSource) else "text"
    numeric = found.numeric_fields(base)
    categorical = found.categorical_fields(spill, key_kind, base)
    for column, empty in zip(source.schema.built_sequences, histories.build(), strict=True):
        categorical.append(found.sharing_field(column, categorical, empty))
    encoder = Encoder(tuple(field for field, _ in numeric), tuple(field for field, _ in categorical))
    return encoder, tuple(statistics for _, statistics in (*numeric, *categorical))


def _encode(
    batches: Iterable[SpilledBatch], encoder: Encoder, features: Features, directory: Path, *, is_weighted: bool
) -> None:
    """Make the second pass, from the spilled rows to the arrays of the splits."""

    def work(batch: SpilledBatch) -> list[WrittenRows]:
        encoded = encoder.encode_columns(batch.columns)
        chosen = [batch.parts == part for part in range(len(SPLITS))]
        weights = batch.weights
        return [
            WrittenRows(batch.labels[rows], encoded.select(rows), None if weights is None else weights[rows])
            for rows in chosen
        ]

    with DatasetWriter(directory, features, is_weighted=is_weighted) as writer:
        for parts in ordered_map(work, batches):
            writer.append(parts)
