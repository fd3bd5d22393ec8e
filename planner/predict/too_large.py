"""Placements that ran out of memory in a probe or a failed run, and are therefore not tried again."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from shunter.hardware.types import Placement
from shunter.planner.assessment import Candidate
from shunter.planner.history.runs import PastRun
from shunter.tracking.evidence import TooLarge

LONGEST_REMEMBERED = timedelta(days=30)  # the memory or its other use may have changed by then


def remembered(runs: Sequence[PastRun], now: datetime) -> list[TooLarge]:
    """Return the placements that past runs of a job found too large, without those that a later run refuted.

    Args:
        runs: Past runs of this data and model family.
        now: Time of the choice.
    """
    found: list[TooLarge] = []
    for run in sorted(runs, key=lambda run: run.ended_at):
        if now - datetime.fromisoformat(run.ended_at) > LONGEST_REMEMBERED:
            continue
        if run.placement is not None and run.outcome in ("reached", "missed"):
            found = [one for one in found if not _is_refuted(one, run)]
        found += run.too_large
    return found


def _is_refuted(known: TooLarge, run: PastRun) -> bool:
    """Return True if the run fitted into the same accelerator at a placement that needs as much memory or more."""
    assert run.placement is not None, "only runs with a placement are compared"
    placement, other = run.placement, known.placement
    same = (placement.accelerator, placement.precision) == (other.accelerator, other.precision)
    same &= _table_room(placement) >= _table_room(other)
    return same and placement.batch_size >= other.batch_size and placement.processes <= other.processes


def with_memory(candidates: Sequence[Candidate], known: Sequence[TooLarge]) -> list[Candidate]:
    """Return the candidates; those that need at least as much memory as a known failure are marked out of memory.

    Args:
        candidates: Candidates, each with the memory of its accelerator.
        known: Placements that ran out of memory.
    """
    return [
        candidate.model_copy(update={"out_of_memory": True})
        if any(_asks_as_much(candidate, one) for one in known)
        else candidate
        for candidate in candidates
    ]


def _asks_as_much(candidate: Candidate, known: TooLarge) -> bool:
    placement, other = candidate.placement, known.placement
    return (
        candidate.accelerator_memory_bytes <= known.accelerator_memory_bytes
        and placement.precision == other.precision
        and placement.batch_size >= other.batch_size
        and placement.processes <= other.processes
        and _table_room(placement) >= _table_room(other)
    )


def _table_room(placement: Placement) -> float:
    """Return the memory that the embedding tables may use, in bytes; infinite without a limit."""
    return math.inf if placement.embedding_memory_bytes is None else placement.embedding_memory_bytes
