"""A training of this machine moves to a better accelerator, or more cores, that others have given back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shunter.engine.executors.here import Here
from shunter.engine.executors.role import Executor
from shunter.engine.executors.this_machine import ThisMachine
from shunter.engine.executors.watch import Going
from shunter.errors import ShunterError
from shunter.extensions.fleet.migration import HereOrBetter
from shunter.extensions.fleet.one_node import better_place
from shunter.hardware.leases import CPU, leases_of_others, slots
from shunter.hardware.reservation import Reservation
from shunter.hardware.types import Placement
from shunter.hardware.waiting_line import is_wanted
from shunter.planner.assessment import Assessment
from shunter.planner.decide import Decision
from shunter.tasks.accelerators import tell


@dataclass
class BetterOfThisMachine:
    """A `engine.executors.role.Place` for one training at a time, begun while others used what would have suited it.

    Args:
        held: What is leased for the training; follows its moves.
        estimate: What all placements of this machine are expected to take, were they all free.
    """

    held: Reservation
    estimate: Callable[[], Decision]
    _now: Placement | None = None
    _going: Going | None = None
    _table: Sequence[Assessment] | None = None

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        """See `Place.executor`; once one has moved, the next ones begin where it went."""
        found = ThisMachine().executor(placement, checkpoints)
        return HereOrBetter(self._now or placement, self) if isinstance(found, Here) else found

    def executors(self, placement: Placement, count: int) -> Sequence[Executor]:
        """See `Place.executors`; several at a time stay where they are."""
        return ThisMachine().executors(placement, count)

    def choose(self, here: Placement, going: Going) -> Placement | None:
        """Where a fleet's policy would have it go on, of what is free and nobody waits for; see `Mover.choose`."""
        rows = self._rows(here)
        was = _row_of(here, rows)
        if was is None or is_wanted({row.candidate.placement.accelerator for row in rows}):
            return None
        self._going = going
        free = {here.label: was} | {
            row.candidate.placement.label: row for row in rows if row.candidate.placement != here and _is_free(row)
        }
        weighed = self.estimate().weighed
        totals = {label: weighed(row) for label, row in free.items()}
        label = better_place(totals, here.label, going) if len(totals) > 1 else None
        return None if label is None else free[label].candidate.placement

    def take(self, here: Placement, after: Placement) -> bool:
        """See `Mover.take`."""
        rows = self._rows(here)
        was, row = _row_of(here, rows), _row_of(after, rows)
        assert was is not None, "it was chosen"
        assert row is not None, "it was chosen"
        assert self._going is not None, "it was chosen"
        seconds = self._going.seconds_left * row.hours / was.hours
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        if not self.held.exchange(after, row.candidate.prediction.memory_bytes, until):
            return False
        tell(f"{after.label} is free: what trains at {here.label} goes on there, from its checkpoint.")
        self._now = after
        return True

    def _rows(self, here: Placement) -> list[Assessment]:
        """Where the same training could go on, were all free."""
        if self._table is None:
            try:
                self._table = self.estimate().table
            except ShunterError:  # no placement keeps the limits, as far as can be foreseen
                self._table = ()
        return [row for row in self._table if _may_take_over(row, here)]


def _row_of(placement: Placement, rows: Sequence[Assessment]) -> Assessment | None:
    """The row of a placement; where it has other threads than any, that with the next number, for it gains less."""
    alike = [row for row in rows if row.candidate.placement.accelerator == placement.accelerator]
    return min(
        alike,
        key=lambda row: (
            row.candidate.placement.threads < placement.threads,
            abs(row.candidate.placement.threads - placement.threads),
        ),
        default=None,
    )


def _is_free(row: Assessment) -> bool:
    """Whether nobody else holds an accelerator; of the processor, enough cores and memory."""
    placement = row.candidate.placement
    others = leases_of_others(placement.accelerator)
    if placement.accelerator != CPU or not others:
        return not others
    memory = sum(lease.memory_bytes for lease in others) + row.candidate.prediction.memory_bytes
    is_known = all(lease.memory_bytes for lease in others)
    has_cores = placement.threads <= len(slots(CPU)) - sum(lease.cores for lease in others)
    return is_known and has_cores and memory <= row.candidate.accelerator_memory_bytes


def _may_take_over(row: Assessment, here: Placement) -> bool:
    """Whether the same training could go on there: with the same batches and precision, within every limit."""
    other = row.candidate.placement
    is_alike = (other.batch_size, other.precision, other.processes, other.embedding_memory_bytes) == (
        here.batch_size,
        here.precision,
        here.processes,
        here.embedding_memory_bytes,
    )
    return is_alike and row.candidate.is_here and not row.excluded_by and other.power_limit_watts is None
