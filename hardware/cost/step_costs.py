"""Costs of embedding tables and of the step itself, fitted to a few short measurements.

    seconds of the tables = start + bags a + lookups b + bytes from the caches c + bytes from memory d
    seconds of a step     = large products + operators + start + factor (tables + traffic + small products)

No coefficient is negative. The fit minimises relative errors, so that small times count as much as large ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.hardware.types import StepCosts


@dataclass(frozen=True, kw_only=True)
class TableTime:
    """Measured pass over embedding tables: forward, and backward with the update.

    Attributes:
        bags: Number of pooled bags.
        lookups: Number of rows read and updated.
        row_bytes: Width of a row in bytes.
        cached: Whether the rows came from the caches.
        seconds: Time of the pass.
    """

    bags: int
    lookups: int
    row_bytes: int
    cached: bool
    seconds: float


def fit_table_costs(threads: int, times: Sequence[TableTime]) -> StepCosts:
    """Fit the costs of bags, rows and bytes; the costs of the step itself stay 0.

    Args:
        threads: Number of threads during the measurements.
        times: Passes over tables of at least four shapes.
    """
    seconds = np.array([table_pass.seconds for table_pass in times])
    design = np.array(
        [
            (
                1.0,
                table_pass.bags,
                table_pass.lookups,
                table_pass.lookups * table_pass.row_bytes * table_pass.cached,
                table_pass.lookups * table_pass.row_bytes * (not table_pass.cached),
            )
            for table_pass in times
        ]
    )
    _, bag, lookup, cached_byte, byte = relative_nnls(design, seconds)
    return StepCosts(
        threads=threads,
        start_seconds=0.0,
        bag_seconds=bag,
        lookup_seconds=lookup,
        cached_byte_seconds=cached_byte,
        byte_seconds=max(byte, cached_byte),  # Noise must not make memory faster than the caches.
    )


def fit_start(measured: Sequence[float], arithmetic: Sequence[float], memory: Sequence[float]) -> tuple[float, float]:
    """Fit `measured = arithmetic + start + factor memory` over some steps.

    Args:
        measured: Seconds of each step.
        arithmetic: Seconds predicted for large products and for operators.
        memory: Seconds predicted for tables, traffic and small products.

    Returns:
        The start in seconds, and the factor, which is at least 1.
    """
    left = np.maximum(np.array(measured) - np.array(arithmetic), 0.0)
    design = np.stack([np.ones(len(left)), np.array(memory)], axis=1)
    weights = np.array(measured)
    start, factor = relative_nnls(design, left, weights)
    if factor >= 1:
        return start, factor
    return max(0.0, float(np.average(left - np.array(memory), weights=1 / weights**2))), 1.0


def relative_nnls(design: np.ndarray, seconds: np.ndarray, weights: np.ndarray | None = None) -> list[float]:
    """Fit `design` times coefficients to `seconds`; return the coefficients, none negative.

    The fit minimises the squares of the errors relative to `weights`, or to `seconds` if None.
    """
    from scipy.optimize import nnls

    divisor = seconds if weights is None else weights
    relative = design / divisor[:, np.newaxis]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(relative / scale, seconds / divisor)
    return [float(coefficient) for coefficient in found / scale]
