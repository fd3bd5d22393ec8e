"""Billing units: a started unit is charged in full."""

import math

from shunter.requests import Billing

BILLED_UNIT_SECONDS = {Billing.SECOND: 1, Billing.MINUTE: 60, Billing.HOUR: 3600}
SHORTEST_BILLED_SECONDS = 60


def affordable_seconds(max_cost: float, price_per_hour: float, billing: Billing) -> float:
    """Return the longest billed time in seconds that costs at most `max_cost`; 0 if the shortest bill costs more."""
    seconds = max_cost / price_per_hour * 3600
    unit = BILLED_UNIT_SECONDS.get(billing)
    if unit is None:
        return seconds
    whole = math.floor(seconds / unit + 1e-9) * float(unit)
    return whole if whole >= SHORTEST_BILLED_SECONDS else 0.0
