"""The command `shunter prices`, which updates the catalogue's prices from a SkyPilot catalogue."""

from pathlib import Path
from typing import Annotated

import typer

from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_line


def prices(
    file: Annotated[
        Path, typer.Argument(help="CSV file of a cloud's prices, such as ~/.sky/catalogs/v8/lambda/vms.csv.")
    ],
    region: Annotated[str | None, typer.Option(help="Region of the cloud; if omitted, the cheapest of all.")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Use the prices of interruptible (spot) machines.")] = False,
) -> None:
    """Update the catalogue's prices from a SkyPilot catalogue.

    The prices go into the user's catalogue, dated by the day of the file. A price is in US dollars per hour, for one
    accelerator with its share of the host.
    """
    with one_sentence_errors():
        from shunter.hardware.catalogue.prices import SkyPilotPrices, update_catalogue_prices
        from shunter.settings import settings

        path = settings().catalogue_path
        updates = update_catalogue_prices(SkyPilotPrices(file=file, region=region, spot=spot), path)
        rows = [(one.name, number(one.former), number(one.price)) for one in updates]
        print_table(console, TextTable(("accelerator", "former price per hour", "price per hour"), rows))
        print_line(f"{len(rows)} prices were written to {path}.")
