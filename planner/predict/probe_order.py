"""Which placements are worth measuring before the choice, and in which order."""

from collections.abc import Mapping, Sequence

from shunter.engine.probes.measurement import Measurement
from shunter.hardware.types import Placement
from shunter.planner.assessment import Assessment, Candidate
from shunter.planner.candidates.placements import kind

PILOTS = 4
PILOT_STEPS = 8


def probe_steps(candidate: Candidate, found: Mapping[Placement, Measurement | None]) -> int:
    """Steps to measure: few at the first of a kind, which may be far slower than predicted, then a second's worth."""
    if kind(candidate.placement) not in {kind(placement) for placement in found}:
        return PILOT_STEPS
    return min(100, max(PILOT_STEPS, int(1.0 / candidate.prediction.step_seconds)))


def next_to_probe(table: Sequence[Assessment], found: Mapping[Placement, Measurement | None]) -> Candidate | None:
    """The candidate whose measurement is worth most now; None when the leader is measured and set against others.

    First the best of each kind (accelerator, threads, precision), then whoever leads, and at last the leader's smallest
    batch, which tells what a step costs whatever its size. Candidates that are not expected to fit into the memory of
    their accelerator are never tried.

    Args:
        table: All candidates, ranked.
        found: Measurements so far.
    """
    fitting = [row.candidate for row in table if row.candidate.fits]
    if not fitting:
        return None
    leader = fitting[0]
    if len(found) < PILOTS:
        kinds = {kind(placement) for placement in found}
        fresh = next((candidate for candidate in fitting if kind(candidate.placement) not in kinds), None)
        if fresh is not None:
            return fresh
    measurement = found.get(leader.placement)
    if measurement is None or measurement.steps <= PILOT_STEPS < probe_steps(leader, found):
        return leader
    alike = [candidate for candidate in fitting if kind(candidate.placement) == kind(leader.placement)]
    if sum(candidate.placement in found for candidate in alike) >= 2:
        return None
    smallest = min(alike, key=lambda candidate: candidate.placement.batch_size)
    return None if smallest.placement in found else smallest
