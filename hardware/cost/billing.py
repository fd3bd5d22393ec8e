"""How time is charged: by units that count in full once they are begun."""

import math

from shunter.requests import Billing

BILLED_UNIT_SECONDS = {Billing.SECOND: 1, Billing.MINUTE: 60, Billing.HOUR: 3600}
SHORTEST_BILLED_SECONDS = 60


def affordable_seconds(max_cost: float, price_per_hour: float, billing: Billing) -> float:
    """The longest time that is charged at most `max_cost`: whole units, and nothing where the shortest bill is more."""
    seconds = max_cost / price_per_hour * 3600
    unit = BILLED_UNIT_SECONDS.get(billing)
    if unit is None:
        return seconds
    whole = math.floor(seconds / unit + 1e-9) * float(unit)
    return whole if whole >= SHORTEST_BILLED_SECONDS else 0.0
