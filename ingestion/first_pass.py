"""First ingestion pass: reads, splits, counts and spills the rows of a log, in threads or worker processes."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import UNIT_BYTES, RawBatch, Rejection, Source, Unit
from shunter.ingestion.encoding.history import Histories
from shunter.ingestion.encoding.split import Splitter
from shunter.ingestion.progress import READING, ProgressReporter
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.files import BLOCK_BYTES
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.units import LineCount
from shunter.ingestion.spill import Spill, SpilledRows, SpillWriter, spill_path
from shunter.ingestion.survey import ChunkSurvey, Survey, nothing_found, survey_batch
from shunter.ingestion.workers import Crew, on_crew
from shunter.ingestion.writer import Quarantine
from shunter.parallel import ordered_map


@dataclass(frozen=True)
class UnitSurvey:
    """Counts of one unit (part of a file) of the log, whose rows a worker has spilled to disk.

    Attributes:
        rejected: Unreadable rows, numbered from the beginning of the unit.
        chunks: Counts of each chunk. The caller adds these, since sums of floats depend on their order.
        spilled: Readable rows in the spill file.
        bytes_read: Bytes read, after decompression.
        file_bytes: Bytes read from disk, before decompression.
    """

    rejected: list[Rejection]
    chunks: list[ChunkSurvey]
    spilled: SpilledRows
    bytes_read: int
    file_bytes: int


@dataclass(frozen=True)
class Surveyor:
    """Reader that surveys units of a log and is sent to the workers.

    Attributes:
        source: The log.
        splitter: Assigns each row to a split.
        directory: Folder of the spilled rows, the same for all workers.
        unit_bytes: Size of a unit in bytes.
    """

    source: Source
    splitter: Splitter
    directory: Path
    unit_bytes: int = UNIT_BYTES

    def itself(self) -> "Surveyor":
        """Return this surveyor, for `Crew.call`, which expects a function that makes the shared object of a worker."""
        return self

    def chunk(self, chunk: object) -> tuple[RawBatch, NDArray[np.int8], ChunkSurvey]:
        """Parse a chunk; return the rows, the split of each row as int8 [rows], and the counts."""
        batch = self.source.parse(chunk)
        parts = self.splitter.assign(batch)
        return batch, parts, survey_batch(batch, parts)


def survey_unit(surveyor: Surveyor, unit: Unit) -> UnitSurvey:
    """Survey one unit of the log and spill its rows; runs in any process."""
    budget, rejected, chunks = Budget.of_settings(), [], []
    with SpillWriter(spill_path(surveyor.directory)) as spill:
        for chunk in surveyor.source.chunks(unit, budget):
            batch, parts, counted = surveyor.chunk(chunk)
            budget.take_rows(len(batch.labels) + len(batch.rejected), surveyor.source.name)
            spill.append(batch, parts)
            rejected += batch.rejected
            chunks.append(counted)
    return UnitSurvey(rejected, chunks, spill.rows, budget.bytes_read, budget.file_bytes)


def survey(
    surveyor: Surveyor,
    quarantine: Quarantine,
    spill: Spill,
    histories: Histories,
    *,
    watch: ProgressReporter,
    crew: Crew | None = None,
) -> Survey:
    """Make the first pass: write readable rows to `spill` and `histories`, and rejected rows to `quarantine`.

    Args:
        surveyor: The log, and how its rows are split.
        quarantine: Receives the unreadable rows.
        spill: Receives the readable rows.
        histories: Receives the readable rows too.
        watch: Receives the progress.
        crew: Workers that survey the units; None for threads. Built histories need None, because they need all rows in
            this process.
    """
    if crew is None:
        return _survey_here(surveyor, quarantine, spill, histories, watch)
    assert histories.are_empty, "built histories need all rows in this process"
    return _survey_by(crew, surveyor, quarantine, spill, watch)


def _survey_here(
    surveyor: Surveyor, quarantine: Quarantine, spill: Spill, histories: Histories, watch: ProgressReporter
) -> Survey:
    """Survey the log chunk by chunk in threads of this process, and write the rows to `spill` and `histories`."""
    found = nothing_found(surveyor.source.schema)
    source, budget, lines = surveyor.source, Budget.of_settings(), LineCount()

    def work(read: tuple[Unit, object]) -> tuple[Unit, RawBatch, NDArray[np.int8], ChunkSurvey]:
        unit, chunk = read
        return unit, *surveyor.chunk(chunk)

    # Units at multiples of a block give the same chunks of lines as the whole file, which leaves no gaps in memory.
    is_same_whole = isinstance(source, CriteoSource) and surveyor.unit_bytes % BLOCK_BYTES == 0
    unit_bytes = sys.maxsize if is_same_whole else surveyor.unit_bytes
    chunks = ((unit, chunk) for unit in source.units(unit_bytes) for chunk in source.chunks(unit, budget))
    with SpillWriter(spill_path(surveyor.directory)) as writer:
        for unit, batch, parts, counted in ordered_map(work, chunks):
            budget.take_rows(len(batch.labels) + len(batch.rejected), source.name)
            watch.read(READING, budget)
            quarantine.add(lines.numbered(batch.rejected, unit))
            writer.append(batch, parts)
            histories.append(batch, parts)
            found.add(counted)
    spill.units.append(writer.rows)
    return found


def _survey_by(crew: Crew, surveyor: Surveyor, quarantine: Quarantine, spill: Spill, watch: ProgressReporter) -> Survey:
    """Survey the log unit by unit with a crew, whose workers spill the rows."""
    found = nothing_found(surveyor.source.schema)
    source, budget, lines = surveyor.source, Budget.of_settings(), LineCount()
    ask = on_crew(crew, surveyor.itself, survey_unit)
    units = source.units(surveyor.unit_bytes)
    for unit, part in ordered_map(lambda unit: (unit, ask(unit)), units, workers=crew.count):
        budget.take_bytes(part.bytes_read, source.name)
        budget.file_bytes += part.file_bytes
        budget.take_rows(sum(int(counted.rows.sum()) for counted in part.chunks) + len(part.rejected), source.name)
        watch.read(READING, budget)
        quarantine.add(lines.numbered(part.rejected, unit))
        spill.units.append(part.spilled)
        for counted in part.chunks:
            found.add(counted)
        found.units.append(part.chunks)
    return found
