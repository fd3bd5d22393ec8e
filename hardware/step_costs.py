"""What the tables and the step itself cost, fitted to a few short measurements.

    seconds of the tables = start + bags a + lookups b + bytes from the caches c + bytes from memory d

No coefficient is negative, and relative errors count, so that the small ones are fitted as well as the large.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from hardware.types import StepCosts


@dataclass(frozen=True, kw_only=True)
class TableTime:
    """One measured pass over tables, forward and backward with the update.

    Attributes:
        bags: pooled in it.
        lookups: rows that were read and updated.
        row_bytes: width of a row.
        cached: whether the rows came from the caches.
        seconds: that it took.
    """

    bags: int
    lookups: int
    row_bytes: int
    cached: bool
    seconds: float


def fit_step_costs(threads: int, times: Sequence[TableTime], start_seconds: float) -> StepCosts:
    """Fit the costs of bags, rows and bytes.

    Args:
        threads: with which all was measured.
        times: passes over tables of at least four shapes.
        start_seconds: of a step that computes nothing, the cost of its operators taken off.
    """
    seconds = np.array([one.seconds for one in times])
    design = np.array(
        [
            (
                1.0,
                one.bags,
                one.lookups,
                one.lookups * one.row_bytes * one.cached,
                one.lookups * one.row_bytes * (not one.cached),
            )
            for one in times
        ]
    )
    relative = design / seconds[:, np.newaxis]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(relative / scale, np.ones(len(times)))
    _, bag, lookup, cached_byte, byte = found / scale
    return StepCosts(
        threads=threads,
        start_seconds=start_seconds,
        bag_seconds=float(bag),
        lookup_seconds=float(lookup),
        cached_byte_seconds=float(cached_byte),
        # Memory is never faster than the caches, whatever the noise says.
        byte_seconds=float(max(byte, cached_byte)),
    )
