"""How much a training gains from more cores: seen on the processor here, carried over to the catalogue's.

A data sheet's cores each promise their full rate. A training step does not: part of it is done by one thread, and
threads wait for each other and for the memory. What part that is, by the gain of all threads here over one at the same
batch size, is taken to be the same elsewhere (Amdahl, "Validity of the single processor approach", AFIPS 1967).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from shunter.hardware.cost.cost_model import log_deviation
from shunter.hardware.cost.residual import scaled
from shunter.hardware.types import Placement, Prediction
from shunter.planner.assessment import Candidate

ASSUMED_SERIAL_SHARE = 0.05  # where one core alone, or no processor, is here to tell; a round number, set on no data


@dataclass(frozen=True)
class CoreScaling:
    """Part of a step on one core that more cores do not shorten.

    Attributes:
        serial_shares: By batch size; empty where nothing tells.
    """

    serial_shares: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> "CoreScaling":
        """As the predictions for the processor of this machine show it, once they were set right by measurements.

        Args:
            candidates: Candidates of this machine; of the same precision and batch size those of one process count.
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
        """How much longer a step takes on so many threads than if each of them did its part."""
        if not self.serial_shares:
            share = ASSUMED_SERIAL_SHARE
        else:
            nearest = min(self.serial_shares, key=lambda size: abs(math.log(size / placement.batch_size)))
            share = self.serial_shares[nearest]
        return 1 + share * (placement.threads - 1)

    def scaled(self, candidate: Candidate) -> Prediction:
        """The prediction for a processor of the catalogue, which counts on every core in full, set right."""
        prediction = candidate.prediction
        return scaled(prediction, math.log(self.factor(candidate.placement)), log_deviation(prediction))


def serial_share(ratio: float, few: int, many: int) -> float:
    """The part `f` for which `f + (1 - f) / threads` has this ratio between many and few threads, within 0 and 1.

    Args:
        ratio: Time with many threads over that with few.
        few: Number of threads.
        many: A larger number.
    """
    divisor = (1 - 1 / many) - ratio * (1 - 1 / few)
    if divisor <= 0:
        return 1.0
    return min(1.0, max(0.0, (ratio / few - 1 / many) / divisor))
