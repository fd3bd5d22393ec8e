"""What a memory saves that may err: by a published measurement, so every figure from here is *estimated*.

Salami, Unsal and Cristal ("Fault Characterization Through FPGA Undervolting", FPL 2018) lower the supply voltage of
on-chip memories. Down to .61 V nothing fails; below, the share of bits that fail grows exponentially as the voltage
falls, up to .06 %, and the power of the memory falls by another 36.1 %. Taken here: on that way the power falls evenly
with the logarithm of the rate, from the first fault in a memory of 37 Mbit on; a higher rate saves no more.
"""

import math
from collections.abc import Sequence

FIRST_RATE, LAST_RATE, LAST_SAVING = 1 / 37e6, 6e-4, 0.361


def relative_power(rate: float) -> float:
    """Power of a memory that may have errors at a rate, relative to one that has none."""
    if rate <= FIRST_RATE:
        return 1.0
    way = math.log(min(rate, LAST_RATE) / FIRST_RATE) / math.log(LAST_RATE / FIRST_RATE)
    return 1 - LAST_SAVING * way


def withstood_rate(aucs: Sequence[tuple[float, float]], floor: float) -> float:
    """The highest rate of errors with which an AUC keeps a floor, between two rates by the logarithm of the rate.

    Args:
        aucs: Rates in ascending order, the first 0, each with its mean AUC.
        floor: Lowest acceptable AUC.

    Returns:
        The rate; 0 where the floor is missed without errors, or at once.
    """
    (_, auc), *others = aucs
    highest = 0.0
    if auc < floor:
        return highest
    for rate, damaged in others:
        if damaged >= floor:
            highest, auc = rate, damaged
            continue
        if not highest:  # below the lowest rate nothing was measured
            return 0.0
        way = (auc - floor) / (auc - damaged)
        return math.exp(math.log(highest) + way * (math.log(rate) - math.log(highest)))
    return highest
