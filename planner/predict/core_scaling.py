"""Scaling of a training step with CPU cores, measured on this machine and applied to processors of the catalogue.

Data sheets assume perfect scaling with cores. A training step gains less: part of it runs on one thread, and threads
wait for each other and for memory. The serial share, derived from the gain of all threads over one thread at the same
batch size, is assumed to be equal on other processors (Amdahl, "Validity of the single processor approach", AFIPS
1967).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from shunter.hardware.cost.cost_model import log_deviation
from shunter.hardware.cost.residual import scaled
from shunter.hardware.types import Placement, Prediction
from shunter.planner.assessment import Candidate

ASSUMED_SERIAL_SHARE = 0.05  # used if nothing can be measured here; a round number, not fitted


@dataclass(frozen=True)
class CoreScaling:
    """Serial share of a training step.

    Attributes:
        serial_shares: Serial share by batch size; empty if unknown.
    """

    serial_shares: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> "CoreScaling":
        """Derive the serial shares from the corrected predictions for this machine's CPU.

        Args:
            candidates: Candidates of this machine; only CPU placements with one process are used.
        """
        seconds: dict[tuple[int, str], dict[int, float]] = {}
        for candidate in candidates:
            placement = candidate.placement
            if candidate.is_here and placement.device == "cpu" and placement.processes == 1:
                of_threads = seconds.setdefault((placement.batch_size, placement.precision), {})
                of_threads[placement.threads] = candidate.prediction.step_seconds
        shares: dict[int, list[float]] = {}
        for (batch_size, _), by_threads in seconds.items():
            if len(by_threads) > 1:
                few, many = min(by_threads), max(by_threads)
                share = serial_share(by_threads[many] / by_threads[few], few, many)
                shares.setdefault(batch_size, []).append(share)
        return cls({batch_size: min(found) for batch_size, found in shares.items()})

    def factor(self, placement: Placement) -> float:
        """Return the slowdown of a step on the placement's threads relative to perfect scaling."""
        if not self.serial_shares:
            share = ASSUMED_SERIAL_SHARE
        else:
            nearest = min(self.serial_shares, key=lambda size: abs(math.log(size / placement.batch_size)))
            share = self.serial_shares[nearest]
        return 1 + share * (placement.threads - 1)

    def scaled(self, candidate: Candidate) -> Prediction:
        """Return the prediction for a catalogue processor, corrected for imperfect scaling."""
        prediction = candidate.prediction
        return scaled(prediction, math.log(self.factor(candidate.placement)), log_deviation(prediction))


def serial_share(ratio: float, few: int, many: int) -> float:
    """Return the serial share `f`, in [0, 1], for which `f + (1 - f) / threads` has the measured ratio of step times.

    Args:
        ratio: Step time with `many` threads divided by step time with `few` threads.
        few: Smaller number of threads.
        many: Larger number of threads.
    """
    divisor = (1 - 1 / many) - ratio * (1 - 1 / few)
    if divisor <= 0:
        return 1.0
    return min(1.0, max(0.0, (ratio / few - 1 / many) / divisor))
