"""Losses by name, as plain data: the labels that each one is for, and its parameter."""

import math
from typing import NamedTuple

from shunter.errors import RequestError
from shunter.registry import Entry, Registry

LOG_LOSS, CLICK = "log_loss", "click"
MODULE = "shunter.engine.loop.loss"
GROUPS = "shunter.engine.loop.loss"
NUMBERS = "shunter.engine.number_losses"
# `labels`: kind of the labels, one of `LABELS`. Predictions of clicks are probabilities, and every loss of clicks is
# judged by the log loss; other labels are numbers, which are predicted and judged by their loss. `parameter`: default
# of the number that may follow the name, as in `focal:2`; 0 if the loss takes none. `compares_groups`: whether the loss
# is a function of the rows' groups too.
LOSSES = Registry(
    "loss",
    {
        LOG_LOSS: Entry(target=f"{MODULE}:log_losses"),
        "focal": Entry(target=f"{MODULE}:focal_losses", capabilities={"parameter": 2.0}),
        "bpr": Entry(target=f"{GROUPS}:bpr_losses", capabilities={"parameter": 1.0, "compares_groups": True}),
        "softmax": Entry(target=f"{GROUPS}:softmax_losses", capabilities={"parameter": 1.0, "compares_groups": True}),
        "mse": Entry(target=f"{NUMBERS}:SquaredError", capabilities={"labels": "number"}),
        "huber": Entry(target=f"{NUMBERS}:Huber", capabilities={"labels": "number", "parameter": 1.0}),
        "quantile": Entry(target=f"{NUMBERS}:Quantile", capabilities={"labels": "number", "parameter": 0.5}),
        "poisson": Entry(target=f"{NUMBERS}:Poisson", capabilities={"labels": "count"}),
        "weighted_logistic": Entry(target=f"{NUMBERS}:WeightedLogistic", capabilities={"labels": "amount"}),
        "ordinal": Entry(target=f"{NUMBERS}:Ordinal", capabilities={"labels": "level"}),
    },
    group="shunter.losses",
    defaults={"labels": CLICK, "parameter": 0.0, "compares_groups": False},
)

LABELS = {  # what a label of each kind has to be
    CLICK: "0 or 1",
    "number": "a finite number",
    "count": "a whole number of at least 0",
    "amount": "a finite number of at least 0",
    "level": "a finite number",
}


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
        expected = f"a positive number behind {name}:" if usual else f"{name} without a parameter"
        raise RequestError(f"The loss {text} has an invalid parameter: give {expected}.")
    return LossName(name, parameter)


def is_for_numbers(loss: str | None) -> bool:
    """Return True if a loss is for numeric labels; False for an unknown loss, which is rejected when a run starts."""
    name = (loss or LOG_LOSS).partition(":")[0]
    return LOSSES.stated(name).get("labels", CLICK) != CLICK


def compares_groups(loss: str) -> bool:
    """Return True if a loss compares the rows of a group; raise if `parse_loss` rejects it."""
    return bool(LOSSES.capability(parse_loss(loss).name, "compares_groups"))


def predicts_probability(loss: str) -> bool:
    """Return True if a loss is for clicks, so that it predicts a probability; raise if `parse_loss` rejects it."""
    return parse_loss(loss).labels == CLICK
