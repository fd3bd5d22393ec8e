"""Checkpoint policy (content, bits and generations) and the cost of the checkpoints of a training run."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from shunter.registry import Entry, Registry

# Classes of the tables, the device of the batches and the policy; each a `changed_rows.ChangedRows`.
ROW_TRACKERS = Registry(
    "checkpoint of changed rows",
    {"changed_rows": Entry(target="shunter.extensions.incremental_checkpoints.changing_tables:ChangingTables")},
    group="shunter.row_trackers",
)

RowSelection = Literal["auto", "full", "one-shot", "consecutive", "intermittent"]
ROW_SELECTIONS: tuple[RowSelection, ...] = get_args(RowSelection)
StoredBits = Literal[32, 8, 4, 3, 2]
STORED_BITS: tuple[StoredBits, ...] = get_args(StoredBits)
FULL_PRECISION = 32
Bits = Literal["auto"] | StoredBits


def stored_bits(value: str) -> Bits:
    """Convert the text of an option to bits per number: `auto`, or an integer."""
    return "auto" if value == "auto" else next(bits for bits in STORED_BITS if str(bits) == value)


# Tables below this size are written whole and in full precision each time, which takes a moment. Of larger tables only
# changed rows are written, in the background. From the second size on `auto` writes the rows in few bits.
INCREMENTAL_FROM_BYTES = 1 << 20
QUANTISED_FROM_BYTES = 1 << 30
# Check-N-Run (NSDI 2022) takes 2, 3 or 4 bits where few restores are expected. On the sample of Criteo's log these cost
# more than the accepted 0.01 % of NE (`benchmarks/checkpoints.py`), so `auto` takes 8 until larger data show otherwise.
BITS_OF_AUTO = 8
# Bits of the final weights: in 8 bits the NE of the model on Criteo's sample rises by 0.0004 %, in 4 bits by 0.06 %.
FEWEST_BITS_OF_BEST = 8


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """Checkpoint policy.

    Attributes:
        bits: Bits per number in stored tables. `auto` is 32 for tables below 1 GiB, otherwise 8. With 32 a resumed
            training run equals an uninterrupted one bit for bit.
        rows: Rule that selects the table rows of each checkpoint: all (`full`), changed rows only, or `auto`.
        generations: Number of states to keep: the newest, and earlier ones in case the newest is damaged.
        bytes_per_second: Largest write rate; None is no limit.
        copied_to: Address of `fsspec` for a remote copy; None makes no copy.
    """

    bits: Bits = "auto"
    rows: RowSelection = "auto"
    generations: int = 2
    bytes_per_second: float | None = None
    copied_to: str | None = None

    def is_incremental(self, table_bytes: int) -> bool:
        """Return True if tables of this size are stored in separate files, which may hold changed rows only."""
        is_requested = self.rows not in ("auto", "full") or self.bits not in ("auto", FULL_PRECISION)
        return is_requested or (table_bytes >= INCREMENTAL_FROM_BYTES and "changed_rows" in ROW_TRACKERS.names)

    def bits_of(self, table_bytes: int) -> int:
        """Return the bits per number in checkpoints, for tables of this size (including optimizer state)."""
        if self.bits != "auto":
            return self.bits
        return BITS_OF_AUTO if table_bytes >= QUANTISED_FROM_BYTES else FULL_PRECISION


BY_DEFAULT = CheckpointSettings()


@dataclass(kw_only=True)
class CheckpointFigures:
    """Cost of the checkpoints of a training run, interruptions included.

    Attributes:
        written: Checkpoints written.
        full: Written checkpoints with all rows.
        skipped: Checkpoints that were due while the previous one was being written, or that were abandoned because rows
            changed faster than the disk wrote them.
        restores: Number of times the training run was resumed from a checkpoint.
        bits: Bits per number in the tables of the last checkpoint; checkpoints of the best weights have 8 or more.
        bytes_written: Bytes of all files.
        bytes_kept: Largest size of the folder after writing a checkpoint, in bytes.
        stall_seconds: Time that training waited for copies of state, including copies of rows before steps change them,
            and for a running writer.
        write_seconds: Time that the writer ran during training.
        processor_seconds: CPU time of the writer, and of the work that training waited for.
        process_seconds: CPU time of the whole process (with several, of the first), from the start of training to the
            end of the last checkpoint.
        copied: Checkpoints copied to the remote address.
        copies_failed: Failed attempts to copy a checkpoint.
    """

    written: int = 0
    full: int = 0
    skipped: int = 0
    restores: int = 0
    bits: int = FULL_PRECISION
    bytes_written: int = 0
    bytes_kept: int = 0
    stall_seconds: float = 0.0
    write_seconds: float = 0.0
    processor_seconds: float = 0.0
    process_seconds: float = 0.0
    copied: int = 0
    copies_failed: int = 0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "CheckpointFigures":
        """Return the figures from stored values; figures unknown to this version are left out."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})

    def joules(self, training_joules: float | None) -> float | None:
        """Estimate the checkpoints' energy in joules by their share of the run's CPU time; None if unknown."""
        if training_joules is None or not self.process_seconds:
            return None
        return training_joules * min(self.processor_seconds / self.process_seconds, 1.0)
