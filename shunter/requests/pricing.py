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
    """The price of this machine, how its time is charged, and what its electricity emits."""

    price_per_hour: float | None = Field(
        default=None,
        gt=0,
        description="Price of this machine per hour; required by --max-cost, --max-cost-per-hour and --objective cost.",
    )
    billing: Billing = Field(
        default=Billing.EXACT,
        description="How time is charged: exactly, or by each started second, minute (60 s at least for both) or hour.",
    )
    grid: str | None = Field(
        default=None,
        min_length=1,
        description="Carbon intensity of the electricity: grams of CO2 equivalent for a kWh, or a CSV file with the "
        "columns hour (0 to 23, UTC) and grams_per_kwh; required by --objective carbon.",
    )
