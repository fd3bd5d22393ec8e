"""Probes of candidates on this machine: measurements of past runs, and new ones of a few steps each."""

import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence

from shunter.engine.probes.measurement import Measurement
from shunter.errors import HardwareError
from shunter.hardware.types import Placement, Workload
from shunter.planner.assessment import Assessment, Candidate
from shunter.planner.candidates.placements import kind
from shunter.planner.history.epochs import PLAN
from shunter.planner.predict.correct import MeasurePlacement, corrected
from shunter.planner.predict.in_training import InTraining
from shunter.planner.predict.power import PowerLimits, limit_steps, power_limited, wants_power_limits
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms
from shunter.requests import Weights

log = logging.getLogger(__name__)

PILOTS = 4
PILOT_STEPS = 8


class Probes:
    """Candidates with a growing set of measurements.

    Attributes:
        found: Measurements by placement, including those of past runs; None if the memory did not suffice.
        new: Newly measured placements, in order.

    Args:
        candidates: Candidates on this machine, with the cost model's predictions.
        workload: Demand of the training.
        terms: Limits and objective, by which candidates are ranked.
        measure: Measurement of a number of steps at a placement; returns None if the memory did not suffice.
        seconds: Time after which no further measurement begins, except the first few; 0 measures nothing.
        known: Measurements of past runs, which are not repeated.
        in_training: Correction from probe to training conditions; None for no correction.
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
        """Return all candidates (also at power limits) under training conditions, corrected by all measurements."""
        unlimited = {where: what for where, what in self.found.items() if where.power_limit_watts is None}
        found = corrected(self._candidates, unlimited, self._workload)
        limits = {where: what for where, what in self.found.items() if where.power_limit_watts is not None}
        return [
            one.model_copy(update={"prediction": self._in_training.correct(one.placement, one.prediction)})
            for one in [*found, *power_limited(found, limits, self._workload)]
        ]

    def newly_found(self) -> dict[Placement, Measurement | None]:
        """Return the new measurements, in the order in which they were made."""
        return {placement: self.found[placement] for placement in self.new}

    def too_large(self) -> list[Placement]:
        """Return the newly measured placements that ran out of memory."""
        return [placement for placement in self.new if self.found[placement] is None]

    def measure_leaders(self) -> None:
        """Measure the most promising candidates, until the leader is measured at two batch sizes."""
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
        """Measure more batch sizes that may beat the leader (the best candidate), the most promising first.

        Accelerator, threads and precision stay the leader's. Later runs of a recurring job reuse the measurements.

        Args:
            most: Largest number of candidates to measure.
            share: Largest time of the measurements, as a share of the predicted job time at the leader.
        """
        table = rank(self.candidates(), self._terms).table
        leader, left_seconds = table[0].candidate, share * 3600 * table[0].hours
        # Without power limits, also where the leader has one: a limit saves about as much at other batch sizes.
        alike = [
            row
            for row in table
            if row.candidate.placement.power_limit_watts is None
            and kind(row.candidate.placement) == kind(leader.placement)
        ]
        least = min((row.score(self._terms.weights) for row in alike), default=math.inf)
        promising = [
            row.candidate
            for row in alike
            if row.candidate.placement not in self.found
            and row.candidate.fits
            and optimistic_score(row, self._terms.weights) < least
        ]
        for candidate in promising[:most]:
            left_seconds -= probe_steps(candidate, self.found) * candidate.prediction.step_seconds
            if left_seconds < 0:
                return
            self.measure_candidate(candidate)

    def measure_on_each(self, batch_sizes: Collection[int]) -> None:
        """Measure the incumbent batch size on every accelerator of this machine.

        Args:
            batch_sizes: Batch sizes of past runs that reached the quality; the first in the ranking is the incumbent.
        """
        table = [row for row in rank(self.candidates(), self._terms).table if row.candidate.fits]
        known = [row.candidate for row in table if row.candidate.placement.batch_size in batch_sizes]
        best: dict[str, Candidate] = {}
        for candidate in known:
            placement = candidate.placement
            if placement.power_limit_watts is None and placement.batch_size == known[0].placement.batch_size:
                best.setdefault(placement.accelerator, candidate)
        for candidate in best.values():
            self.measure_candidate(candidate)

    def measure_candidate(self, candidate: Candidate) -> bool:
        """Measure a candidate's step time by a probe, unless it is measured already or the time is over.

        Returns:
            Whether the candidate was measured.
        """
        if not (self._is_allowed and self._has_time) or candidate.placement in self.found:
            return False
        self._probe(candidate.placement, probe_steps(candidate, self.found))
        return True

    def _measure_power_limits(self, leader: Candidate, limits: Sequence[float]) -> None:
        """Measure the leader at each power limit; stop if this process lacks the privileges."""
        for watts in limits:
            placement = leader.placement.model_copy(update={"power_limit_watts": watts})
            if placement in self.found:
                continue
            try:
                self._probe(placement, limit_steps(leader))
            except HardwareError as error:
                log.info("Power limits on %s are not measured: %s", placement.accelerator, error)
                return  # without the privileges, other power limits fail too

    def _probe(self, placement: Placement, steps: int) -> None:
        self.found[placement] = self._measure(placement, steps)
        self.new.append(placement)
        log.info("Measured %s: %s.", placement.label, self.found[placement])

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline


def optimistic_score(row: Assessment, weights: Weights) -> float:
    """Return the objective if step time is at the low end of its interval and work two standard deviations lower."""
    prediction = row.candidate.prediction
    low = prediction.step_seconds_interval[0] if prediction.step_seconds_interval else prediction.step_seconds
    work = math.exp(-2 * (row.candidate.work_log_deviation or PLAN.deviation))
    power = 1.0 if len(weights.used) == 1 else sum(weights.used.values())
    return row.score(weights) * (min(1.0, low / prediction.step_seconds) * work) ** power


def probe_steps(candidate: Candidate, found: Mapping[Placement, Measurement | None]) -> int:
    """Return the steps to measure: few for the first probe of its kind, which may be slow, then about 1 s."""
    if kind(candidate.placement) not in {kind(placement) for placement in found}:
        return PILOT_STEPS
    return min(100, max(PILOT_STEPS, int(1.0 / candidate.prediction.step_seconds)))


def next_to_probe(table: Sequence[Assessment], found: Mapping[Placement, Measurement | None]) -> Candidate | None:
    """Return the candidate to probe next; None if the leader and another batch size of its kind are measured.

    The order is: the best of each kind (accelerator, threads, precision), then the current leader, then the leader's
    smallest batch, which gives the constant time of a step. Candidates that are not expected to fit into the memory of
    their accelerator are skipped.

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
