"""A log whose parts are files of their own, as those of published benchmarks are."""

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
from shunter.ingestion.sources.tabular import CsvSource, ParquetSource

FileSource = CriteoSource | CsvSource | ParquetSource


@dataclass(frozen=True)
class PartsSource:
    """The files of each part, one part after the other.

    Attributes:
        training: The training part; what is in `others` is never mixed with it.
        others: Numbers of the parts that have files of their own (1 validation, 2 test), with these files.
    """

    training: FileSource
    others: tuple[tuple[int, FileSource], ...]

    @property
    def name(self) -> str:
        """That of the training part."""
        return self.training.name

    @property
    def schema(self) -> Schema:
        """Which column is what, in all parts."""
        return self.training.schema

    @property
    def given(self) -> tuple[int, ...]:
        """Numbers of the parts that have files of their own."""
        return tuple(part for part, _ in self.others)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of all parts."""
        return tuple(path for _, source in self._all for path in source.paths)

    @property
    def identity(self) -> str:
        """How the files are read, and how many are of which part."""
        counts = {SPLITS[part]: len(source.paths) for part, source in self._all}
        return f"parts:{self.training.identity}:{counts}"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Parts of the files, those of one part after the other."""
        for owner, (_, source) in enumerate(self._all):
            yield from (replace(unit, owner=owner) for unit in source.units(unit_bytes))

    def chunks(self, unit: Unit | None = None, budget: Budget | None = None) -> Iterator[tuple[int, FileSource, Any]]:
        """Read one part after the other, or a unit."""
        for part, source in self._all if unit is None else [self._all[unit.owner]]:
            for chunk in source.chunks(unit, budget):
                yield part, source, chunk

    def parse(self, chunk: tuple[int, FileSource, Any]) -> RawBatch:
        """Read the columns of a chunk, all of whose rows are of one part."""
        part, source, inner = chunk
        batch = source.parse(inner)
        return replace(batch, parts=np.full(len(batch.labels), part, np.int8))

    @property
    def _all(self) -> tuple[tuple[int, FileSource], ...]:
        return ((0, self.training), *self.others)


def parts_source(training: FileSource, others: Mapping[str, FileSource]) -> PartsSource:
    """Put the parts of a log together; a time column is not needed, for the parts are known.

    Args:
        training: The training part.
        others: The parts `validation` and `test`, as far as they are given.

    Raises:
        DataError: The parts are of different formats, share a file, or cannot be read as given parts.
    """
    schema = training.schema
    if schema.part is not None:
        raise DataError(
            f"The schema says that {schema.part} names the part of each row, and --{next(iter(others))} gives one as "
            "files: leave one of them out."
        )
    if schema.built_sequences:
        raise DataError(f"With --{next(iter(others))} {no_built_histories(schema.built_sequences[0].column)}.")
    owner = {path.resolve(): "data" for path in training.paths}
    for part, source in others.items():
        if source.identity != training.identity:
            raise DataError(
                f"{source.paths[0]} is {source.identity} and the training part {training.identity}: give all parts in "
                "one format."
            )
        for path in source.paths:
            if (other := owner.setdefault(path.resolve(), part)) != part:
                raise DataError(
                    f"{path} is in --{other} and in --{part}: give each part files of its own, or the model would be "
                    "judged on rows that it has learned."
                )
    timeless = schema.without_time()
    numbered = [(SPLITS.index(part), replace(source, schema=timeless)) for part, source in others.items()]
    return PartsSource(replace(training, schema=timeless), tuple(sorted(numbered, key=lambda pair: pair[0])))
