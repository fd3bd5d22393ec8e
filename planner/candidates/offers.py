"""Offers to choose from: the accelerators of this machine, and those of the catalogue."""

import datetime
from collections.abc import Sequence

from pydantic import Field

from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.hardware.catalogue.offers import catalogue_profile
from shunter.hardware.catalogue.prices import Prices
from shunter.hardware.catalogue.rows import AcceleratorRow, Catalogue, load_catalogue
from shunter.hardware.types import HardwareProfile
from shunter.planner.assessment import PriceSource
from shunter.requests import ALL_OFFERS, LOCAL_OFFERS, JobRequest, Limits

TRAINED_ON = ("gpu", "cpu")  # kinds of catalogue rows in `all`, if tried; others are compared only if named


class Offer(Frozen):
    """One accelerator at a price."""

    profile: HardwareProfile
    is_here: bool = Field(
        description="Whether the accelerator is in this machine; otherwise its figures come from the catalogue."
    )
    price_per_hour: float | None = None
    price_source: PriceSource | None = None
    note: str | None = Field(default=None, description="Doubtful figures of the accelerator's catalogue row, as text.")

    @property
    def name(self) -> str:
        """Return the accelerator's name, as in its placements."""
        return self.profile.accelerator.name


def local_offers(profiles: Sequence[HardwareProfile], price_per_hour: float | None) -> list[Offer]:
    """Return this machine's accelerators at the price given by the user, else at the profile's price."""
    offers = []
    for profile in profiles:
        price, source = price_per_hour, "given"
        if price is None and profile.price_per_hour is not None:
            price, source = profile.price_per_hour.value, "catalogue"
        offers.append(
            Offer(profile=profile, is_here=True, price_per_hour=price, price_source=None if price is None else source)
        )
    return offers


def priced(offers: Sequence[Offer], prices: Prices | None) -> list[Offer]:
    """Replace the offers' prices by the user's prices for the accelerators that the user's file lists.

    Args:
        offers: Offers of this machine, of a cluster or of the catalogue.
        prices: The user's prices; None leaves the offers as they are.
    """
    if prices is None:
        return list(offers)
    found = [(offer, prices.price_per_hour(offer.profile.accelerator, is_here=offer.is_here)) for offer in offers]
    return [
        offer if price is None else offer.model_copy(update={"price_per_hour": price, "price_source": "given"})
        for offer, price in found
    ]


def catalogue_offers(
    asked: str,
    profiles: Sequence[HardwareProfile],
    *,
    catalogue: Catalogue | None = None,
    today: datetime.date | None = None,
) -> list[Offer]:
    """Return the requested catalogue accelerators that are not in this machine.

    Args:
        asked: Accelerators to offer: `local` for none, `all` for every accelerator on which Shunter has been tested, or
            names separated by commas.
        profiles: Profiles of this machine; `all` leaves out the accelerators of this machine.
        catalogue: Catalogue to search; if None, the shipped one with the user's rows.
        today: Reference day for the age of a row; None for the current day.

    Raises:
        RequestError: a name is unknown, the message suggests the nearest; or the user's catalogue is damaged.
    """
    if asked.strip().lower() == LOCAL_OFFERS:
        return []
    catalogue = catalogue or load_catalogue()
    local = _local_rows(profiles, catalogue)
    day = today or datetime.datetime.now(datetime.UTC).date()
    rows = _asked_rows(asked, local, catalogue)
    newest = max((row.price_date for row in catalogue.accelerators if row.price_date is not None), default=day)
    return [
        _offer(row, catalogue_profile(row, local, catalogue, here=profiles), today=day, newest=newest) for row in rows
    ]


def check_limits(request: JobRequest, offers: Sequence[Offer]) -> None:
    """Raise if no accelerator can keep a limit, independent of the job.

    Raises:
        RequestError: a limit on price or power is below that of every accelerator.
    """
    limits: Limits = request.limits
    priced = [(offer.price_per_hour, offer.name) for offer in offers if offer.price_per_hour is not None]
    if request.needs_price and not priced:
        raise RequestError(
            f"{request.needs_price} needs the price of an accelerator, but none is known: add --price-per-hour."
        )
    if limits.max_cost_per_hour is not None and min(priced)[0] > limits.max_cost_per_hour:
        price, name = min(priced)
        raise RequestError(
            f"--max-cost-per-hour {limits.max_cost_per_hour:g} is below the price of every accelerator; "
            f"the lowest is {price:g} for {name}: raise the limit."
        )
    idle = [(figure.value, offer.name, figure.source) for offer in offers if (figure := offer.profile.idle_watts)]
    if limits.max_watts is not None and len(idle) == len(offers) and min(idle)[0] >= limits.max_watts:
        watts, name, source = min(idle)
        raise RequestError(
            f"--max-watts {limits.max_watts:g} is below the idle power of every accelerator; the lowest is "
            f"{watts:.3g} W ({source}) for {name}: raise the limit."
        )


LocalRows = list[tuple[HardwareProfile, AcceleratorRow]]


def _local_rows(profiles: Sequence[HardwareProfile], catalogue: Catalogue) -> LocalRows:
    """Return this machine's profiles with their catalogue rows, for accelerators in the catalogue."""
    found = []
    for profile in profiles:
        try:
            found.append((profile, catalogue.find_accelerator(profile.accelerator.model)))
        except RequestError:
            continue  # without a row, nothing can be inferred for other accelerators
    return found


def _asked_rows(asked: str, local: LocalRows, catalogue: Catalogue) -> list[AcceleratorRow]:
    if asked.strip().lower() == ALL_OFFERS:
        here = {row.name for _, row in local}
        return [row for row in catalogue.accelerators if row.kind in TRAINED_ON and row.tried and row.name not in here]
    names = [name.strip() for name in asked.split(",") if name.strip()]
    return list({row.name: row for row in map(catalogue.find_accelerator, names)}.values())


def _offer(row: AcceleratorRow, profile: HardwareProfile, *, today: datetime.date, newest: datetime.date) -> Offer:
    """Return a catalogue row as an offer; without price if it is of another kind or date than other rows' prices."""
    price = row.comparable_price(newest)
    notes = [] if row.kind in TRAINED_ON else [f"{row.name} is not a device on which Shunter can train"]
    if row.kind in TRAINED_ON and not row.tried:
        notes = [f"Shunter has not been tried on {row.name}"]
    if row.price_per_hour is not None and price is None:
        notes.append(f"the price of {row.name} is not comparable with the others and is ignored")
    return Offer(
        profile=profile,
        is_here=False,
        price_per_hour=price,
        price_source=None if price is None else "catalogue",
        note="; ".join(notes) or row.staleness(today),
    )
