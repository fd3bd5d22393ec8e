"""Accelerator prices per hour: the user's `prices.yaml`, and the SkyPilot catalogue that it can name.

accelerators:            # price of one, on any machine; named as in `shunter profile` or as in the catalogue
  cpu: 0.40
  NVIDIA L4: 0.70
nodes:                   # price of a whole machine, by its host name or its name in the cluster
  gpu-box-3: 4.10
skypilot:                # further prices: US dollars
  file: vms.csv          # columns InstanceType, AcceleratorName, AcceleratorCount, Price, SpotPrice, Region
  region: us-east-1
  spot: false
"""

import csv
import platform
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError

from shunter.errors import RequestError
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.types import Accelerator
from shunter.validation import clause, sentence
from shunter.yaml_file import load_yaml, yaml_text


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SkyPilotPrices(_Part):
    """Selection of prices from SkyPilot's catalogue of one cloud, a CSV file under `~/.sky/catalogs`."""

    file: Path = Field(description="CSV file; a relative path is taken from the folder of `prices.yaml`.")
    region: str | None = Field(default=None, description="Region; if omitted, the cheapest of all counts.")
    spot: bool = Field(default=False, description="Whether the price of an interruptible machine counts.")


class Prices(_Part):
    """Prices per hour, in the user's currency."""

    accelerators: dict[str, PositiveFloat] = Field(default={}, description="Of one, by its name here or its model's.")
    nodes: dict[str, PositiveFloat] = Field(default={}, description="Of a whole machine, by its name.")
    skypilot: SkyPilotPrices | None = Field(default=None, description="Second source of prices.")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the user's `prices.yaml`.

        Raises:
            RequestError: the file cannot be read, is no YAML, or has an unknown key or a wrong value.
        """
        try:
            prices = cls.model_validate(load_yaml(yaml_text(path)) or {})
        except OSError as error:
            raise RequestError(f"The file of prices {path} cannot be read ({error.strerror}): name another.") from error
        except ValidationError as error:
            raise RequestError(
                sentence([f"The file of prices {path} is wrong, {clause(error.errors()[0], cls)}"])
            ) from error
        except ValueError as error:
            raise RequestError(f"The file of prices {path} is no YAML: write keys such as 'accelerators'.") from error
        if prices.skypilot is None:
            return prices
        sky = prices.skypilot.model_copy(update={"file": path.parent / prices.skypilot.file.expanduser()})
        return prices.model_copy(update={"skypilot": sky})

    def price_per_hour(self, accelerator: Accelerator, *, is_here: bool = True) -> float | None:
        """Return the hourly price of an accelerator: its own, its model's, its machine's or SkyPilot's; None if none.

        Args:
            accelerator: Accelerator of this machine, of a cluster (`cpu@NODE`) or of the catalogue.
            is_here: Whether the accelerator is in this machine or the cluster; if not, prices of machines do not apply.

        Raises:
            RequestError: SkyPilot's file cannot be read.
        """
        device, _, node = accelerator.name.partition("@")
        machine = node or platform.node()
        for name in (accelerator.name, device, accelerator.model):
            if name in self.accelerators:
                return self.accelerators[name]
        row = row_name(accelerator.model)
        for name, price in self.accelerators.items():
            if row is not None and row_name(name) == row:
                return price
        if is_here and machine in self.nodes:
            return self.nodes[machine]
        return None if self.skypilot is None else skypilot_price(self.skypilot, accelerator.model)


def skypilot_price(prices: SkyPilotPrices, model: str) -> float | None:
    """Return the lowest hourly price of one accelerator with its host, over regions and machine sizes; None if unknown.

    The price of a machine with several accelerators is divided by their number. Rows without an instance type are
    skipped, because there the host is priced separately.

    Args:
        prices: SkyPilot file, region and kind of price.
        model: Name of the accelerator, as its vendor or the catalogue writes it.

    Raises:
        RequestError: the file cannot be read, or lacks a column.
    """
    column = "SpotPrice" if prices.spot else "Price"
    found: list[float] = []
    wanted = row_name(model)
    rows = {model: wanted}
    try:
        with prices.file.open(newline="") as file:
            for row in csv.DictReader(file):
                name, region, instance = row["AcceleratorName"], row["Region"], row["InstanceType"]
                if name not in rows:
                    rows[name] = row_name(name) if name else None
                is_wanted = name == model or (wanted is not None and rows[name] == wanted)
                if is_wanted and instance and row[column] and prices.region in (None, region):
                    found.append(float(row[column]) / float(row["AcceleratorCount"]))
    except OSError as error:
        raise RequestError(f"SkyPilot's prices {prices.file} cannot be read ({error.strerror}).") from error
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise RequestError(f"SkyPilot's prices {prices.file} lack a column or a number ({error}).") from error
    return min((price for price in found if price > 0), default=None)


def row_name(model: str) -> str | None:
    """Return the name of an accelerator's catalogue row; None if the catalogue has no such row."""
    try:
        return load_catalogue().find_accelerator(model).name
    except RequestError:
        return None
