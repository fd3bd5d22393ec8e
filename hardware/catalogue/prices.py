"""Accelerator prices per hour: the user's `prices.yaml`, and the SkyPilot catalogue that it can name.

accelerators:            # price of one accelerator on any machine, named as in `shunter profile` or in the catalogue
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml
from pydantic import Field, PositiveFloat, ValidationError

from shunter.errors import RequestError
from shunter.files import replace_file
from shunter.frozen import Frozen
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.types import Accelerator
from shunter.validation import clause, sentence
from shunter.yaml_file import load_yaml, yaml_text


class SkyPilotPrices(Frozen):
    """Selection of prices from SkyPilot's catalogue of one cloud, a CSV file under `~/.sky/catalogs`."""

    file: Path = Field(description="CSV file of prices; a relative path starts at the folder of `prices.yaml`.")
    region: str | None = Field(default=None, description="Region of the cloud; if omitted, the cheapest region.")
    spot: bool = Field(default=False, description="Whether to use prices of interruptible (spot) machines.")


class Prices(Frozen):
    """Prices per hour, in the user's currency."""

    accelerators: dict[str, PositiveFloat] = Field(
        default={},
        description="Price per hour of one accelerator, by its name on this machine or the name of its model.",
    )
    nodes: dict[str, PositiveFloat] = Field(default={}, description="Price per hour of a whole machine, by its name.")
    skypilot: SkyPilotPrices | None = Field(
        default=None, description="Prices from SkyPilot, for accelerators without a price of the user."
    )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the user's `prices.yaml`.

        Raises:
            RequestError: the file cannot be read, is not YAML, or has an unknown key or a wrong value.
        """
        try:
            prices = cls.model_validate(load_yaml(yaml_text(path)) or {})
        except OSError as error:
            raise RequestError(
                f"The file of prices {path} cannot be read ({error.strerror}): name another file."
            ) from error
        except ValidationError as error:
            raise RequestError(
                sentence([f"The file of prices {path} is wrong, {clause(error.errors()[0], cls)}"])
            ) from error
        except ValueError as error:
            raise RequestError(
                f"The file of prices {path} is not valid YAML: write keys such as 'accelerators'."
            ) from error
        if prices.skypilot is None:
            return prices
        sky = prices.skypilot.model_copy(update={"file": path.parent / prices.skypilot.file.expanduser()})
        return prices.model_copy(update={"skypilot": sky})

    def price_per_hour(self, accelerator: Accelerator, *, is_here: bool = True) -> float | None:
        """Return the hourly price by the accelerator's name, its model, its machine or SkyPilot; None if unknown.

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
        return None if self.skypilot is None else skypilot_prices(self.skypilot).get(row or accelerator.model)


def skypilot_prices(prices: SkyPilotPrices) -> dict[str, float]:
    """Return the lowest hourly price of one accelerator, including its host, by the accelerator's name.

    The name is that of the row in Shunter's catalogue; without such a row, the name that SkyPilot uses.

    The price of a machine with several accelerators is divided by their number. Rows without an instance type are
    skipped, because there the host is priced separately.

    Raises:
        RequestError: the file cannot be read, or lacks a column.
    """
    column = "SpotPrice" if prices.spot else "Price"
    rows: dict[str, str] = {}
    found: dict[str, float] = {}
    try:
        with prices.file.open(newline="") as file:
            for row in csv.DictReader(file):
                name, region, instance = row["AcceleratorName"], row["Region"], row["InstanceType"]
                if not (name and instance and row[column] and prices.region in (None, region)):
                    continue
                if name not in rows:
                    rows[name] = row_name(name) or name
                price = float(row[column]) / float(row["AcceleratorCount"])
                if price > 0:
                    found[rows[name]] = min(price, found.get(rows[name], price))
    except OSError as error:
        raise RequestError(
            f"SkyPilot's prices {prices.file} cannot be read ({error.strerror}): give a vms.csv file of its catalogue."
        ) from error
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise RequestError(
            f"SkyPilot's prices {prices.file} lack a column or a number ({error}): give a vms.csv of its catalogue."
        ) from error
    return found


class PriceUpdate(NamedTuple):
    """New price of a catalogue accelerator.

    Attributes:
        name: Name of the catalogue row.
        former: Price before; None if it was unknown.
        price: Price from the file.
    """

    name: str
    former: float | None
    price: float


def update_catalogue_prices(prices: SkyPilotPrices, catalogue_file: Path) -> tuple[PriceUpdate, ...]:
    """Write the prices of a SkyPilot catalogue into the user's catalogue, dated by the day of the file.

    Args:
        prices: SkyPilot file, region and kind of price.
        catalogue_file: The user's catalogue; other fields are kept, but comments are lost.

    Raises:
        RequestError: a file cannot be read, or the prices name no accelerator of the catalogue.
    """
    rows = {row.name: row for row in load_catalogue().accelerators}
    found = {name: price for name, price in skypilot_prices(prices).items() if name in rows}
    if not found:
        raise RequestError(
            f"The file {prices.file} has no price of a known accelerator: give a vms.csv file of a cloud."
        )
    content: dict[str, Any] = dict(load_yaml(yaml_text(catalogue_file)) or {}) if catalogue_file.is_file() else {}
    kept = {str(row["name"]): dict(row) for row in content.get("accelerators", ())}
    own_names = {row_name(name) or name: name for name in kept}
    day = datetime.fromtimestamp(prices.file.stat().st_mtime, UTC).date()
    source = f"skypilot-{prices.file.parent.name}"
    for name, price in found.items():
        row = kept.setdefault(own_names.get(name, name), {"name": name})
        row |= {"price_per_hour": round(price, 6), "price_date": day.isoformat(), "price_source": source}
        row["price_includes_host"] = True
    region, kind = prices.region or "all regions", "spot" if prices.spot else "on demand"
    sources = {**content.get("sources", {}), source: f"SkyPilot catalogue {prices.file.name}, {region}, {kind}"}
    whole = {**content, "sources": sources, "accelerators": list(kept.values())}
    catalogue_file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(catalogue_file, yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))
    return tuple(PriceUpdate(name, rows[name].price_per_hour, price) for name, price in sorted(found.items()))


def row_name(model: str) -> str | None:
    """Return the name of the catalogue row that describes an accelerator model; None if no row does."""
    try:
        return load_catalogue().find_accelerator(model).name
    except RequestError:
        return None
