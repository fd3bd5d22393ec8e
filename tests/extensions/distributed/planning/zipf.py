"""Tables whose lookups follow Zipf's law, for tests and benchmarks of plans."""

import math

import numpy as np

from shunter.extensions.distributed.planning.demand import POINTS, TableDemand


def zipf_table(name: str, rows: int, width: int, *, ids_per_sample: float = 1.0, skew: float = 1.05) -> TableDemand:
    """Return a table whose row of rank r is looked up in proportion to r to the power of -skew."""
    ranks = np.unique(np.geomspace(1, rows, POINTS).round().astype(np.int64))
    masses = [_mass(int(rank), skew) for rank in ranks]
    curve = tuple((float(rank), mass / masses[-1]) for rank, mass in zip(ranks, masses, strict=True))
    return TableDemand(name, rows, width, 1, ids_per_sample, curve, curve)


def _mass(rank: int, skew: float) -> float:
    """Return the sum of r^-skew for r up to rank; after the first terms by the Euler-Maclaurin formula."""
    exact = min(rank, 64)
    total = sum(one**-skew for one in range(1, exact + 1))
    if rank > exact:
        low, high = exact + 0.5, rank + 0.5
        total += math.log(high / low) if skew == 1 else (high ** (1 - skew) - low ** (1 - skew)) / (1 - skew)
    return total
