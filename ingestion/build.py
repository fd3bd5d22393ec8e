"""Construction of a data set: one pass over the source to fit the encoder, one over spilled rows to encode."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import SPLITS, Dataset, FieldStatistics, SplitStatistics
from shunter.engine.number_losses import describe_label
from shunter.ingestion.batch import Source
from shunter.ingestion.encoding.columns import KeyKind
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.history import Histories
from shunter.ingestion.encoding.learned_map import LEARNED_MAPS
from shunter.ingestion.encoding.split import GivenSplit, HashSplit, Splitter, TimeSplit
from shunter.ingestion.encoding.value_statistics import OutOfFold, ValueStatistic, ValueTally, fit_statistic, folds_of
from shunter.ingestion.fields import TextForm
from shunter.ingestion.first_pass import Surveyor, survey
from shunter.ingestion.progress import ProgressReporter
from shunter.ingestion.row_filter import count_sessions, tables_of, with_negatives, with_row_filter, with_sessions
from shunter.ingestion.sample import merged_in
from shunter.ingestion.schema import Schema
from shunter.ingestion.second_pass import ENCODER_FOLDER, MOST_COMPARED, Target, encode_in_threads, encode_with_crew
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.days import DaysSource
from shunter.ingestion.sources.header import varying_columns
from shunter.ingestion.sources.parts import PartsSource
from shunter.ingestion.sources.synthetic import SyntheticSource
from shunter.ingestion.sources.tabular import TableSource
from shunter.ingestion.spill import Spill
from shunter.ingestion.survey import Survey
from shunter.ingestion.timing import split_by_time
from shunter.ingestion.vectors import write_vectors
from shunter.ingestion.workers import BY_THREADS, Crew, Work
from shunter.ingestion.writer import Quarantine
from shunter.models.spec import Features


def build(
    source: Source,
    directory: Path,
    fingerprint: str,
    seed: int,
    max_bad_share: float,
    *,
    positives_suffice: bool = False,
    work: Work = BY_THREADS,
) -> Dataset:
    """Ingest `source` into the empty folder `directory`.

    Raises:
        DataError: The source cannot be read, has too many bad rows, or cannot be learned from.
    """
    # Histories and sessions are built in one process, which sees all rows in order.
    crew = None if source.schema.needs_one_process else work.crew
    watch = ProgressReporter(work.on_progress, source)
    source = with_negatives(with_row_filter(with_sessions(source, max_bad_share)))
    source, splitter = _make_splitter(source, seed, max_bad_share, crew, watch)
    quarantine = Quarantine(path=directory / "quarantine.csv")
    with Spill(directory) as spill, Histories(directory, source.schema) as histories:
        found = survey(
            Surveyor(source, splitter, directory, work.unit_bytes), quarantine, spill, histories, watch=watch, crew=crew
        )
        good_rows = int(found.rows.sum())
        quarantine.check(good_rows, max_bad_share)
        found.check(source.name, is_given=isinstance(splitter, GivenSplit), positives_suffice=positives_suffice)
        encoder, fields, folds = _fit(source, found, spill, histories, watch)
        encoder.save(directory / ENCODER_FOLDER)
        write_vectors(source.schema, encoder, directory)
        features = replace(encoder.features, tasks=source.schema.tasks)
        # All splits store their times in an unsorted log with users, else all but training.
        is_in_order = splitter.is_in_order if isinstance(splitter, TimeSplit) else None
        timed = SPLITS if is_in_order is False and source.schema.user is not None else SPLITS[1:]
        names, group = [column.field for column in source.schema.categorical], source.schema.group or source.schema.user
        target = Target(
            directory,
            features,
            spill.is_weighted,
            timed if spill.is_timed else (),
            user_column=names.index(group) if group in names else None,
            folds=folds,
            compared_share=min(1.0, MOST_COMPARED / good_rows) if isinstance(splitter, GivenSplit) else 0.0,
        )
        on_rows = partial(watch.encoded, of_rows=good_rows)
        if crew is None:
            repeated = encode_in_threads(histories.attach(spill.read()), encoder, target, on_rows)
        else:
            repeated = encode_with_crew(crew, spill, found, target, on_rows)
    splits = {name: replace(one, repeated_share=repeated.get(name)) for name, one in found.split_statistics().items()}
    if source.schema.label.loss is not None:
        features, splits = _with_numbers(source, directory, features, splits)
    by_time = splitter if isinstance(splitter, TimeSplit) else None
    shares = source.schema.split
    dataset = Dataset(
        name=source.name,
        directory=directory,
        fingerprint=fingerprint,
        features=features,
        splits=splits,
        split_by=splitter.kind,
        fields=fields,
        quarantined_rows=quarantine.rows,
        user=source.schema.user,
        item=source.schema.item,
        group=source.schema.group,
        is_weighted=source.schema.weight is not None,
        time_range=by_time and by_time.time_range,
        time_cuts=by_time and by_time.cuts,
        asked_shares=by_time and (shares.train, shares.validation, shares.test),
        is_in_order_of_time=by_time and by_time.is_in_order,
        unmatched_rows=dict(found.unmatched),
        left_out_rows=found.left_out,
        sessions=count_sessions(source),
        where=source.schema.where,
        negative_rate=None if source.schema.negatives is None else float(np.exp(encoder.log_odds_shift)),
        varying_columns=varying_columns(source),
        derived_from=_derived_from(encoder),
    )
    dataset.save()
    return dataset


def _with_numbers(
    source: Source, directory: Path, features: Features, splits: Mapping[str, SplitStatistics]
) -> tuple[Features, dict[str, SplitStatistics]]:
    """Return `features` with the scale of a numeric label, and `splits` with the mean label of each split."""
    label = source.schema.label
    assert label.loss is not None
    values = {name: read_array(directory / f"{name}.label.npy") for name in SPLITS}
    known = source.number if isinstance(source, DaysSource) else None
    number = known or describe_label(label.loss, np.asarray(values["train"]), label.column)
    means = {name: float(values[name].mean(dtype=np.float64)) for name in SPLITS}
    return replace(features, number=number), {
        name: replace(one, positives=0, mean=means[name]) for name, one in splits.items()
    }


def _make_splitter(
    source: Source, seed: int, max_bad_share: float, crew: Crew | None, watch: ProgressReporter
) -> tuple[Source, Splitter]:
    """Return the source with the detected time format, and its splitter by given parts, days, time or a hash."""
    if isinstance(source, DaysSource):
        return source, source.splitter(seed)
    by_hash = HashSplit.of(source.schema, seed)
    if isinstance(source, PartsSource):
        return source, GivenSplit(source.given, by_hash)
    if source.schema.time is None and source.schema.part is None:
        return source, by_hash
    assert isinstance(source, TableSource)
    if source.schema.part is not None:
        return replace(source, schema=source.schema.without_time()), GivenSplit((1, 2), by_hash)
    return split_by_time(source, max_bad_share, watch, crew)


def _derived_from(encoder: Encoder) -> tuple[str, ...]:
    """Return the columns that occur only in crosses, and the struct columns whose fields have dotted names."""
    crossed = [name for field in encoder.categorical for name in field.cross]
    ends = [(name, place) for name in encoder.columns for place, letter in enumerate(name) if letter == "."]
    fields = {*encoder.features.dense, *(field.name for field in encoder.categorical)}
    return tuple(dict.fromkeys(name for name in [*crossed, *(name[:end] for name, end in ends)] if name not in fields))


def _fit(
    source: Source, found: Survey, spill: Spill, histories: Histories, watch: ProgressReporter
) -> tuple[Encoder, tuple[FieldStatistics, ...], tuple[OutOfFold, ...]]:
    """Fit the encoder on the training split; return it with field statistics and out-of-fold encodings."""
    base = source.base if isinstance(source, DaysSource) else None
    numeric = found.numeric_fields(base)
    first = source.training if isinstance(source, PartsSource) else source
    first = first.days[0].source if isinstance(first, DaysSource) else first
    is_hexadecimal = isinstance(first, CriteoSource | SyntheticSource)
    key_kind: Callable[[str], KeyKind] = (lambda _: "hexadecimal") if is_hexadecimal else source.schema.key_kind
    categorical = found.categorical_fields(spill, key_kind, base, watch.counted)
    for column, empty in zip(source.schema.built_sequences, histories.build(), strict=True):
        categorical.append(found.sharing_field(column, categorical, empty))
    if source.schema.learned_columns:
        categorical = LEARNED_MAPS.load("learn")(source.schema, spill, categorical)
    form = source.schema.value_form
    text_form = TextForm(**{name: getattr(source.schema, name) for name in TextForm.model_fields})
    encodings, folds = _fit_encodings(source.schema, spill, base)
    fields = tuple(field for field, _ in numeric), tuple(field for field, _ in categorical)
    sampler = None if source.schema.negatives is None else tables_of(source)[0].negatives
    shift = 0.0 if sampler is None else sampler.log_odds_shift  # corrects predictions for sampled negatives
    encoder = Encoder(*fields, form, text_form, encodings, log_odds_shift=shift)
    merged = merged_in(source)
    learned = [FieldStatistics(name=one.name, kind="numeric", cardinality=0, missing_share=0.0) for one in encodings]
    statistics = (*(one for _, one in numeric), *learned, *(one for _, one in categorical))
    described = tuple(replace(one, merged_texts=merged.get(one.name, ())) for one in statistics)
    return encoder, described, folds


def _fit_encodings(
    schema: Schema, spill: Spill, base: Encoder | None
) -> tuple[tuple[ValueStatistic, ...], tuple[OutOfFold, ...]]:
    """Return the target and count encodings for all rows, and their out-of-fold values for training rows."""
    if not schema.value_encodings:
        return (), ()
    names = [field.field for field in schema.categorical]
    tallies = {one.column: ValueTally() for one in schema.value_encodings}
    for batch in spill.read():
        columns = batch.columns.select(batch.parts == 0)
        folds = folds_of(columns)
        labels = (batch.labels if batch.labels.ndim == 1 else batch.labels[:, 0])[batch.parts == 0]
        for field, tally in tallies.items():
            tally.add(columns.keys[names.index(field)], folds, labels)
    crosses = {field.field: field.cross for field in schema.categorical}
    same = {field.name for field in base.categorical if field.cross == crosses.get(field.name, ())} if base else set()
    former = {one.name: one for one in base.statistics if one.field in same} if base else {}
    found: list[ValueStatistic] = []
    out_of_fold: list[OutOfFold] = []
    for one in schema.value_encodings:
        fitted = fit_statistic(tallies[one.column], one, former.get(one.name))
        found.append(fitted[0])
        if fitted[1] is not None:
            out_of_fold.append(OutOfFold(fitted[0], names.index(one.column), *fitted[1]))
    return tuple(found), tuple(out_of_fold)
