"""Losses by name, as plain data: the labels that each one is for, and its parameter."""

import math
from typing import NamedTuple

from shunter.errors import RequestError
from shunter.registry import Entry, Registry

LOG_LOSS, CLICK = "log_loss", "click"
MODULE = "shunter.engine.loop.loss"
# `labels`: kind of the labels; predictions of clicks are probabilities, and every loss of clicks is judged by the log
# loss. `parameter`: default of the number that may follow the name, as in `focal:2`; 0 if the loss takes none.
LOSSES = Registry(
    "loss",
    {
        LOG_LOSS: Entry(target=f"{MODULE}:log_losses"),
        "focal": Entry(target=f"{MODULE}:focal_losses", capabilities={"parameter": 2.0}),
    },
    group="shunter.losses",
    defaults={"labels": CLICK, "parameter": 0.0},
)


class LossName(NamedTuple):
    """Name of a loss, with its parameter.

    Attributes:
        name: Name in `LOSSES`.
        parameter: Parameter of the loss; 0 if it takes none.
    """

    name: str
    parameter: float

    @property
    def labels(self) -> str:
        """Kind of the labels that the loss is for."""
        return str(LOSSES.capability(self.name, "labels"))


def parse_loss(text: str) -> LossName:
    """Parse a loss such as `focal` or `focal:2`.

    Raises:
        UnknownNameError: No loss has this name.
        MissingExtensionError: The loss is of an extension whose folder is absent.
        RequestError: The parameter is no positive number, or the loss takes none.
    """
    name, colon, number = text.partition(":")
    usual = float(LOSSES.capability(name, "parameter"))
    if not colon:
        return LossName(name, usual)
    try:
        parameter = float(number)
    except ValueError:
        parameter = math.nan
    if not usual or not 0 < parameter < math.inf:
        expected = f"a positive number behind {name}:" if usual else f"{name} alone, which takes no number"
        raise RequestError(f"The loss {text} does not suit: give {expected}.")
    return LossName(name, parameter)
