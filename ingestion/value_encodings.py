"""Fit of the target and count encodings of a schema, in one pass over the spilled training rows."""

from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.value_statistics import OutOfFold, ValueStatistic, ValueTally, fit_statistic, folds_of
from shunter.ingestion.schema import Schema
from shunter.ingestion.spill import Spill


def fit_encodings(
    schema: Schema, spill: Spill, base: Encoder | None
) -> tuple[tuple[ValueStatistic, ...], tuple[OutOfFold, ...]]:
    """Fit the encodings that a schema names.

    Args:
        schema: Schema with `target_encoding` or `count_encoding`.
        spill: The rows.
        base: Encoder of the previous nightly run, whose scales are kept and whose counts are added; None for a new fit.

    Returns:
        Encodings for all rows, and out-of-fold encodings for the training rows.
    """
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
