"""What is measured of the candidates on this machine: before by past runs, and now in a few steps each."""

import logging
import math
import time
from collections.abc import Mapping, Sequence

from shunter.engine.probes.measurement import Measurement
from shunter.errors import HardwareError
from shunter.hardware.types import Placement, Workload
from shunter.planner.assessment import Assessment, Candidate
from shunter.planner.candidates.placements import kind
from shunter.planner.predict.correct import MeasurePlacement, corrected
from shunter.planner.predict.in_training import InTraining
from shunter.planner.predict.power import PowerLimits, limit_steps, power_limited, wants_power_limits
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms

log = logging.getLogger(__name__)

PILOTS = 4
PILOT_STEPS = 8


class Probes:
    """Candidates of which more and more are measured.

    Attributes:
        found: Measurements by placement, those of past runs among them; None where the memory did not suffice.
        new: Placements that were measured now, in order.

    Args:
        candidates: Candidates on this machine, with the cost model's predictions.
        workload: Demand of the training.
        terms: Limits and objective, which say what is promising.
        measure: Measurement of a number of steps at a placement; gives None when the memory did not suffice.
        seconds: Time after which no further measurement begins, but for the first few; with 0 nothing is measured.
        known: Measurements of past runs, which are not repeated.
        in_training: What trainings take beyond probes; if None, nothing is known of that.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        workload: Workload,
        terms: Terms,
        measure: MeasurePlacement,
        *,
        seconds: float,
        known: Mapping[Placement, Measurement] | None = None,
        in_training: InTraining | None = None,
    ) -> None:
        self.found: dict[Placement, Measurement | None] = dict(known or {})
        self.new: list[Placement] = []
        self._candidates, self._workload, self._terms, self._measure = list(candidates), workload, terms, measure
        self._in_training = in_training or InTraining({})
        self._is_allowed, self._deadline = seconds > 0, time.monotonic() + seconds

    def candidates(self) -> list[Candidate]:
        """All candidates as a training would take them, by what was found so far, and those at lower power limits."""
        unlimited = {where: what for where, what in self.found.items() if where.power_limit_watts is None}
        found = corrected(self._candidates, unlimited, self._workload)
        limits = {where: what for where, what in self.found.items() if where.power_limit_watts is not None}
        return [
            one.model_copy(update={"prediction": self._in_training.correct(one.placement, one.prediction)})
            for one in [*found, *power_limited(found, limits, self._workload)]
        ]

    def newly_found(self) -> dict[Placement, Measurement | None]:
        """What was measured now, in order."""
        return {placement: self.found[placement] for placement in self.new}

    def too_large(self) -> list[Placement]:
        """Where the memory did not suffice, of those measured now."""
        return [placement for placement in self.new if self.found[placement] is None]

    def measure_leaders(self) -> None:
        """Measure the most promising candidates, until the leader is measured and set against others."""
        while self._is_allowed and (len(self.found) < PILOTS or self._has_time):
            following = next_to_probe(rank(self.candidates(), self._terms).table, self.found)
            if following is None:
                break
            self._probe(following.placement, probe_steps(following, self.found))

    def measure_power_limits(self, limits: PowerLimits) -> None:
        """Measure lower power limits at the leader of each GPU.

        Args:
            limits: Power limits of an accelerator, in watts.
        """
        if not self._is_allowed:
            return
        leaders: dict[str, Candidate] = {}
        for row in rank(self.candidates(), self._terms).table:
            if row.candidate.placement.power_limit_watts is None:
                leaders.setdefault(row.candidate.placement.accelerator, row.candidate)
        for leader in leaders.values():
            if wants_power_limits(leader, self._terms):
                self._measure_power_limits(leader, limits(leader.placement.accelerator))

    def measure_further(self, most: int, share: float = math.inf) -> None:
        """Measure a few more batch sizes of the leader's kind, the most promising first.

        For a training that recurs: what a run measures, the following ones know.

        Args:
            most: Most candidates to measure.
            share: Of the time that the whole job is expected to take at the leader, what measuring may take at most.
        """
        table = rank(self.candidates(), self._terms).table
        leader, left_seconds = table[0].candidate, share * 3600 * table[0].hours
        alike = [
            row.candidate
            for row in table
            if row.candidate.placement not in self.found
            and row.candidate.fits
            and row.candidate.placement.power_limit_watts is None
            and kind(row.candidate.placement) == kind(leader.placement)
        ]
        for candidate in alike[:most]:
            left_seconds -= probe_steps(candidate, self.found) * candidate.prediction.step_seconds
            if left_seconds < 0:
                return
            self.measure_candidate(candidate)

    def measure_candidate(self, candidate: Candidate) -> bool:
        """Measure this one, unless it is measured or the time is over.

        Returns:
            Whether something was learned.
        """
        if not (self._is_allowed and self._has_time) or candidate.placement in self.found:
            return False
        self._probe(candidate.placement, probe_steps(candidate, self.found))
        return True

    def _measure_power_limits(self, leader: Candidate, limits: Sequence[float]) -> None:
        """As far as there are rights to set them."""
        for watts in limits:
            placement = leader.placement.model_copy(update={"power_limit_watts": watts})
            if placement in self.found:
                continue
            try:
                self._probe(placement, limit_steps(leader))
            except HardwareError as error:
                log.info("No power limit is tried on %s: %s", placement.accelerator, error)
                return  # without the rights, no other limit will do either

    def _probe(self, placement: Placement, steps: int) -> None:
        self.found[placement] = self._measure(placement, steps)
        self.new.append(placement)
        log.info("Measured %s: %s.", placement.label, self.found[placement])

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline


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
