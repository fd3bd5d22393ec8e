"""What time on this machine costs."""

from enum import StrEnum

from pydantic import Field

from shunter.requests.groups import Group


class Billing(StrEnum):
    """How time is charged."""

    EXACT = "exact"
    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"


class Pricing(Group, frozen=True, title="Pricing"):
    """The price of this machine, and how its time is charged."""

    price_per_hour: float | None = Field(
        default=None,
        gt=0,
        description="Price of this machine per hour; required by --max-cost, --max-cost-per-hour and --objective cost.",
    )
    billing: Billing = Field(
        default=Billing.EXACT,
        description="How time is charged: exactly, or by each started second, minute (60 s at least for both) or hour.",
    )
