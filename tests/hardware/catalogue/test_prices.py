"""Prices by accelerator and machine, and from SkyPilot's catalogue."""

import os
import platform
from datetime import date
from pathlib import Path

import pytest

from shunter.errors import RequestError
from shunter.hardware.catalogue.prices import Prices, PriceUpdate, SkyPilotPrices, row_name, update_catalogue_prices
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.types import Accelerator
from tests.hardware.profiles import make_profile

SKYPILOT = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
small,L4,1.0,4,16,,0.80,0.30,east,east-a
large,L4,8.0,96,384,,5.60,,east,east-a
small,L4,1.0,4,16,,0.90,0.20,west,west-a
,L4,1.0,,,,0.10,0.05,east,east-a
plain,,,8,32,,0.40,0.10,east,east-a
other,V100,1.0,8,32,,,0.90,east,east-a
unknown,Frob-9000,1.0,8,32,,0.01,0.01,east,east-a
"""


def accelerator(name: str, model: str) -> Accelerator:
    return make_profile(name=name).accelerator.model_copy(update={"model": model})


def write(folder: Path, text: str) -> Prices:
    (folder / "vms.csv").write_text(SKYPILOT)
    path = folder / "prices.yaml"
    path.write_text(text)
    return Prices.read(path)


def test_its_own_price_counts_before_that_of_its_model_and_that_before_the_machine(tmp_path: Path) -> None:
    here = platform.node()
    prices = write(
        tmp_path, f"accelerators: {{'cuda:0': 1.5, L4: 0.7, 'cpu@far': 0.2}}\nnodes: {{'{here}': 4.0, far: 9.0}}\n"
    )
    assert prices.price_per_hour(accelerator("cuda:0", "NVIDIA L4")) == 1.5
    assert prices.price_per_hour(accelerator("cuda:1", "NVIDIA L4")) == 0.7, "the catalogue knows it by that name"
    assert prices.price_per_hour(accelerator("cuda:1", "Frob 1")) == 4.0
    assert prices.price_per_hour(accelerator("cpu@far", "x")) == 0.2
    assert prices.price_per_hour(accelerator("cuda:1@far", "Frob 1")) == 9.0
    assert prices.price_per_hour(accelerator("Frob 1", "Frob 1"), is_here=False) is None


@pytest.mark.parametrize(
    ("options", "price"),
    [("", 0.7), (", region: west", 0.9), (", spot: true", 0.2), (", spot: true, region: east", 0.3)],
)
def test_skypilots_price_is_that_of_one_accelerator_with_its_host(tmp_path: Path, options: str, price: float) -> None:
    prices = write(tmp_path, f"skypilot: {{file: vms.csv{options}}}\n")
    assert prices.price_per_hour(accelerator("cuda:0", "NVIDIA L4")) == pytest.approx(price)


def test_what_skypilot_has_no_price_of_is_unknown(tmp_path: Path) -> None:
    prices = write(tmp_path, "skypilot: {file: vms.csv}\n")
    assert row_name("V100") is not None
    assert prices.price_per_hour(accelerator("cuda:0", "Tesla V100-SXM2-16GB")) is None
    assert prices.price_per_hour(accelerator("cpu", "an unheard processor")) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accelerators: {cpu: -1}", "cpu in accelerators is -1: give a number above 0"),
        ("machines: {a: 1}", "there is no key machines: it takes accelerators, nodes, skypilot"),
        (": :", "is not valid YAML"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        write(tmp_path, text)
    with pytest.raises(RequestError, match="cannot be read"):
        Prices.read(tmp_path / "nowhere.yaml")


def test_skypilots_file_is_refused_where_it_lacks_a_column(tmp_path: Path) -> None:
    prices = write(tmp_path, "skypilot: {file: vms.csv}\n")
    (tmp_path / "vms.csv").write_text("Name,Price\na,1\n")
    with pytest.raises(RequestError, match="lack a column"):
        prices.price_per_hour(accelerator("cuda:0", "NVIDIA L4"))


def test_catalogue_prices_are_updated_and_dated_by_a_skypilot_file(tmp_path: Path) -> None:
    file, catalogue = tmp_path / "vms.csv", tmp_path / "home" / "catalogue.yaml"
    file.write_text(SKYPILOT)
    os.utime(file, (1_750_000_000, 1_750_000_000))
    catalogue.parent.mkdir()
    catalogue.write_text("sources: {mine: our own}\naccelerators: [{name: L4, tdp_watts: 60}]\n")
    former = load_catalogue().find_accelerator("L4").price_per_hour
    updates = update_catalogue_prices(SkyPilotPrices(file=file, region="west"), catalogue)
    assert updates == (PriceUpdate("L4", former, 0.9),)
    row = load_catalogue(catalogue).find_accelerator("L4")
    assert (row.price_per_hour, row.price_date, row.tdp_watts) == (0.9, date(2025, 6, 15), 60)
    assert load_catalogue(catalogue).sources["mine"] == "our own"
    update_catalogue_prices(SkyPilotPrices(file=file, spot=True), catalogue)
    assert load_catalogue(catalogue).find_accelerator("L4").price_per_hour == 0.2


def test_a_file_without_a_known_accelerator_updates_nothing(tmp_path: Path) -> None:
    file = tmp_path / "vms.csv"
    file.write_text(SKYPILOT.splitlines()[0] + "\n")
    with pytest.raises(RequestError):
        update_catalogue_prices(SkyPilotPrices(file=file), tmp_path / "catalogue.yaml")
    assert not (tmp_path / "catalogue.yaml").exists()
