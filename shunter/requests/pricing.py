"""Request group of prices: the cost of time on this machine."""

from enum import StrEnum
from pathlib import Path

from pydantic import Field, field_validator

from shunter.requests.groups import Group
from shunter.secrets import check_is_path
from shunter.settings import Settings


class Billing(StrEnum):
    """Billing unit of time."""

    EXACT = "exact"
    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"


class Pricing(Group, frozen=True, title="Advanced: prices and electricity"):
    """Price of this machine, the billing of its time, and the carbon intensity of its electricity."""

    price_per_hour: float | None = Field(
        default=None,
        gt=0,
        description="Price of this machine per hour; --max-cost and --objective cost need it or --prices.",
    )
    billing: Billing = Field(
        default=Billing.EXACT,
        description="How time is charged: exactly, or per started second, minute or hour.",
    )
    prices: str | None = Field(
        default=None,
        min_length=1,
        description="YAML file of prices by accelerator and machine; if omitted, prices.yaml of Shunter's home.",
    )
    grid: str | None = Field(
        default=None,
        min_length=1,
        description="Carbon intensity in g CO2e per kWh, or a CSV file by hour; --objective carbon needs it.",
    )

    _files_are_paths = field_validator("prices", "grid")(check_is_path)

    @property
    def prices_path(self) -> Path | None:
        """Return the price file to use; None if there is none or the price was given."""
        if self.price_per_hour is not None:
            return None
        if self.prices is not None:
            return Path(self.prices)
        users = Settings().prices_path
        return users if users.is_file() else None
