"""Request group of prices: the cost of time on this machine."""

from enum import StrEnum
from pathlib import Path

from pydantic import Field

from shunter.requests.groups import Group
from shunter.settings import Settings


class Billing(StrEnum):
    """Billing unit of time."""

    EXACT = "exact"
    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"


class Pricing(Group, frozen=True, title="Advanced: prices and electricity"):
    """The price of this machine, how its time is charged, and what its electricity emits."""

    price_per_hour: float | None = Field(
        default=None,
        gt=0,
        description="Price of this machine per hour; it or --prices is required by --max-cost, "
        "--max-cost-per-hour and --objective cost.",
    )
    billing: Billing = Field(
        default=Billing.EXACT,
        description="How time is charged: exactly, or by each started second, minute (60 s at least for both) or hour.",
    )
    prices: str | None = Field(
        default=None,
        min_length=1,
        description="YAML file of prices by accelerator and by machine, which counts where --price-per-hour is not "
        "given; if omitted, prices.yaml of Shunter's home, where there is one.",
    )
    grid: str | None = Field(
        default=None,
        min_length=1,
        description="Carbon intensity of the electricity: grams of CO2 equivalent for a kWh, or a CSV file with the "
        "columns hour (0 to 23, UTC) and grams_per_kwh; required by --objective carbon.",
    )

    @property
    def prices_path(self) -> Path | None:
        """Return the price file to use; None if there is none or the price was given."""
        if self.price_per_hour is not None:
            return None
        if self.prices is not None:
            return Path(self.prices)
        users = Settings().prices_path
        return users if users.is_file() else None
