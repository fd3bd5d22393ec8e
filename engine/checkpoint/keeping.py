"""How the state of a training is kept: what each checkpoint holds, in how many bits, and what that has cost so far."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from shunter.engine.checkpoint.growth import Policy

StoredBits = Literal[32, 8, 4, 3, 2]
STORED_BITS: tuple[StoredBits, ...] = get_args(StoredBits)
FULL_PRECISION = 32
Bits = Literal["auto"] | StoredBits


def stored_bits(asked: str) -> Bits:
    """The bits that an option names: `auto`, or a number."""
    return "auto" if asked == "auto" else next(bits for bits in STORED_BITS if str(bits) == asked)


# Tables below this are written whole and in full precision each time: that takes a moment. Where they are larger, they
# are written beside training, and only what has changed; and from the second size on `auto` writes it in few bits.
INCREMENTAL_FROM_BYTES = 1 << 20
QUANTISED_FROM_BYTES = 1 << 30
# Restores from which quality does not suffer, by bits, as Check-N-Run (NSDI 2022) found; more are for 8 bits. On the
# sample of Criteo's log 2, 3 and 4 bits cost more than the hundredth of a per cent of NE that this is to keep
# (`benchmarks/checkpoints.py`), so `auto` takes no fewer than 8 until larger data say otherwise.
ALLOWED_RESTORES = {2: 1, 3: 3, 4: 20}
MOST_RESTORES_BITS = 8
FEWEST_BITS_OF_AUTO = 8
# What the training ends with: in 8 bits the NE of the model on Criteo's sample rises by 0.0004 %, in 4 by 0.06 %.
FEWEST_BITS_OF_BEST = 8


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """How checkpoints are kept.

    Attributes:
        bits: Bits of a number in the tables; `auto` is 32 while the tables are small, and else as few as the expected
            restores allow, no fewer than 8. With 32 an interrupted training goes on bit by bit as an undisturbed one.
        policy: What each checkpoint holds.
        generations: How many states can be gone back to: the newest, and those before it in case it is damaged.
        bytes_per_second: Most that is written in a second; None is no limit.
        expected_restores: How often this training is expected to be interrupted.
        copied_to: An address of `fsspec` that is kept a copy at; None keeps none.
    """

    bits: Bits = "auto"
    policy: Policy = "auto"
    generations: int = 2
    bytes_per_second: float | None = None
    expected_restores: float = 1.0
    copied_to: str | None = None

    def is_incremental(self, table_bytes: int) -> bool:
        """Whether tables are kept apart from the rest of the state, piece by piece."""
        is_asked_for = self.policy not in ("auto", "full") or self.bits not in ("auto", FULL_PRECISION)
        return is_asked_for or table_bytes >= INCREMENTAL_FROM_BYTES

    def hangs_on_restores(self, table_bytes: int) -> bool:
        """Whether the number of restores decides about the bits: not while `auto` takes as many for any number."""
        return FEWEST_BITS_OF_AUTO < MOST_RESTORES_BITS and self._is_chosen(table_bytes)

    def _is_chosen(self, table_bytes: int) -> bool:
        return self.bits == "auto" and table_bytes >= QUANTISED_FROM_BYTES

    def bits_of(self, table_bytes: int, restores: int) -> int:
        """Bits of the next checkpoint.

        Args:
            table_bytes: Bytes of all tables and their optimiser's state.
            restores: How often the training was gone on with from a checkpoint.
        """
        if not self._is_chosen(table_bytes):
            return FULL_PRECISION if self.bits == "auto" else self.bits
        needed = max(self.expected_restores, restores)
        bits = next((bits for bits, allowed in ALLOWED_RESTORES.items() if needed <= allowed), MOST_RESTORES_BITS)
        return max(bits, FEWEST_BITS_OF_AUTO)


BY_DEFAULT = Keeping()


@dataclass(kw_only=True)
class CheckpointFigures:
    """What the checkpoints of a training came to, interruptions included.

    Attributes:
        written: Checkpoints that were written.
        full: Those of them that held all rows.
        skipped: Those that were due while the one before was still being written, or that were given up, for rows
            changed faster than the disk took them.
        restores: How often the training was gone on with from one.
        bits: Bits of a number in the tables of the last one; those with the best weights have 8 or more.
        bytes_written: Bytes of all files.
        bytes_kept: Most bytes that lay in the folder after one was written.
        stall_seconds: Time that training waited: for copies of what is written, also those that it makes of rows before
            it changes them, and for a writer at work.
        write_seconds: Time that the writer was at work beside training.
        processor_seconds: Processor time of the writer, and of what training waited for.
        process_seconds: Processor time of the whole process meanwhile; with several, of the first.
        copied: Checkpoints that were copied to another address.
        copies_failed: Attempts to copy one that failed.
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
        """As they were kept; figures that this version does not know are left out."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})

    def joules(self, training_joules: float | None) -> float | None:
        """Energy of the checkpoints, estimated: the share of a training's that they have of its processor time."""
        if training_joules is None or not self.process_seconds:
            return None
        return training_joules * min(self.processor_seconds / self.process_seconds, 1.0)
