"""Log with separate files for each split, as in published benchmarks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shunter.engine.data.dataset import SPLITS
from shunter.errors import DataError
from shunter.ingestion.batch import UNIT_BYTES, RawBatch, Unit
from shunter.ingestion.schema import Schema, no_built_histories
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.tabular import TableSource

FileSource = CriteoSource | TableSource


@dataclass(frozen=True)
class PartsSource:
    """Source with separate files for each split, read one split after the other.

    Attributes:
        training: Files of the training split, whose rows are never mixed with those of `others`.
        others: Splits with files of their own: index (1 validation, 2 test) and files.
    """

    training: FileSource
    others: tuple[tuple[int, FileSource], ...]

    @property
    def name(self) -> str:
        """Name of the training files."""
        return self.training.name

    @property
    def schema(self) -> Schema:
        """Roles of the columns in all splits."""
        return self.training.schema

    @property
    def given(self) -> tuple[int, ...]:
        """Indices of the splits that have files of their own."""
        return tuple(part for part, _ in self.others)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files of all predefined splits."""
        return tuple(path for _, source in self._all for path in source.paths)

    @property
    def identity(self) -> str:
        """Text that identifies the file format and the number of files of each split."""
        counts = {SPLITS[part]: len(source.paths) for part, source in self._all}
        return f"parts:{self.training.identity}:{counts}"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Yield units of the files, split after split."""
        for owner, (_, source) in enumerate(self._all):
            yield from (replace(unit, owner=owner) for unit in source.units(unit_bytes))

    def chunks(self, unit: Unit | None = None, budget: Budget | None = None) -> Iterator[tuple[int, FileSource, Any]]:
        """Yield the chunks of all splits in order, or of one unit, each with split index and source."""
        for part, source in self._all if unit is None else [self._all[unit.owner]]:
            for chunk in source.chunks(unit, budget):
                yield part, source, chunk

    def parse(self, chunk: tuple[int, FileSource, Any]) -> RawBatch:
        """Parse a chunk; all its rows belong to one split."""
        part, source, inner = chunk
        batch = source.parse(inner)
        return replace(batch, parts=np.full(len(batch.labels), part, np.int8))

    @property
    def _all(self) -> tuple[tuple[int, FileSource], ...]:
        return ((0, self.training), *self.others)


def parts_source(training: FileSource, others: Mapping[str, FileSource]) -> PartsSource:
    """Combine the files of the splits; the time column is dropped, since the splits are predefined.

    Args:
        training: Files of the training split.
        others: Files of the splits `validation` and `test`, if given.

    Raises:
        DataError: The splits have different formats or share a file. The schema names a `part` column, built
            histories, sessions or a split of each user, which a predefined split excludes.
    """
    schema = training.schema
    if schema.part is not None:
        raise DataError(
            f"The column {schema.part} of the schema gives the split of each row, but "
            f"--{next(iter(others))} gives a part as files: leave one of them out."
        )
    if schema.split.per_user:
        raise DataError(
            f"The schema splits the rows of each user, but --{next(iter(others))} gives a part as files: "
            "leave per_user out of the split in the schema."
        )
    if schema.sessions is not None:
        raise DataError(
            f"The schema builds sessions by time, but the rows of --{next(iter(others))} need not follow "
            "in time: give a column of sessions, or let Shunter split the rows by time."
        )
    if schema.built_sequences:
        raise DataError(f"With --{next(iter(others))} {no_built_histories(schema.built_sequences[0].column)}.")
    owner = {path.resolve(): "data" for path in training.paths}
    for part, source in others.items():
        if source.identity != training.identity:
            raise DataError(
                f"The format of {source.paths[0]} is {source.identity}, that of the training part "
                f"{training.identity}: give all parts in one format."
            )
        for path in source.paths:
            if (other := owner.setdefault(path.resolve(), part)) != part:
                raise DataError(
                    f"The file {path} is in --{other} and in --{part}: give each part its own files, or "
                    "the model is evaluated on rows that it was trained on."
                )
    timeless = schema.without_time()
    numbered = [(SPLITS.index(part), replace(source, schema=timeless)) for part, source in others.items()]
    return PartsSource(replace(training, schema=timeless), tuple(sorted(numbered, key=lambda pair: pair[0])))
