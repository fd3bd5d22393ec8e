"""Hard limits, the guaranteed quality of a registered model, and the objective that the chosen placement minimises."""

import math
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema

from shunter.requests.groups import Group


class Objective(StrEnum):
    """Quantity that the choice of a placement minimises within the limits."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"
    CARBON = "carbon"


# Named products.
NAMED = {"edp": "time=1,energy=1"}


class Weights(BaseModel, frozen=True, extra="forbid"):
    """Weights of the quantities: the choice minimises the product of powers time^a energy^b cost^c carbon^d.

    The objective is a product because hours, kilowatt hours and money have no common unit. With `time=1,energy=0.5` one
    per cent of time is worth two per cent of energy, in any unit and among any candidates. `edp` is `time=1,energy=1`,
    the energy-delay product (Gonzalez and Horowitz, IEEE JSSC 31(9), 1996).
    """

    time: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    energy: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cost: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    carbon: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an objective: `energy`, `edp`, or weights such as `time=1,energy=0.5`.

        Raises:
            ValueError: A quantity is unknown, missing or given twice, or a weight is no positive number.
        """
        known = ", ".join([*Objective, *NAMED])
        text = NAMED.get(text.strip(), text)
        weights: dict[str, float] = {}
        for part in text.split(","):
            name, equals, number = (piece.strip() for piece in part.partition("="))
            if name not in set(Objective):
                raise ValueError(
                    f"the objective {name!r} is unknown: use one of {known}, or weights such as time=1,energy=0.5"
                )
            if name in weights:
                raise ValueError(f"the objective {name} has two weights: leave one out")
            try:
                weights[name] = float(number) if equals else 1.0
            except ValueError:
                raise ValueError(f"the weight {number!r} of {name} is not a number") from None
            if not (weights[name] > 0 and math.isfinite(weights[name])):
                raise ValueError(f"the weight {number} of {name} must be positive")
        return cls(**weights)

    @property
    def used(self) -> dict[Objective, float]:
        """Return the quantities with a weight above 0."""
        return {quantity: weight for quantity in Objective if (weight := getattr(self, quantity.value))}

    @property
    def text(self) -> str:
        """Return text such as `time` or `time=1,energy=0.5`, which `parse` reads."""
        used = self.used
        if len(used) == 1:
            return str(next(iter(used)))
        return ",".join(f"{quantity}={weight:g}" for quantity, weight in used.items())


ObjectiveText = Annotated[
    str,
    AfterValidator(lambda text: Weights.parse(text).text),
    WithJsonSchema(  # a drop-down for one quantity, a line for several
        {
            "anyOf": [
                {"title": "One quantity", "type": "string", "enum": [*map(str, Objective), *NAMED]},
                {"title": "Weights", "type": "string", "pattern": "="},
            ]
        }
    ),
]


LIKELY = 0.5  # probability with which the likeliest figure keeps a limit


class Limits(Group, frozen=True, title="Limits"):
    """Hard limits: a placement that is expected to break one is excluded, a run that reaches one stops.

    Time, energy and cost are those of the command, from the start of its process to its end, without the time in which
    it waits for other training jobs.
    """

    max_hours: float | None = Field(default=None, gt=0, description="Limit on the time of the whole command, in hours.")
    max_kwh: float | None = Field(default=None, gt=0, description="Limit on the energy of the whole command, in kWh.")
    max_cost: float | None = Field(
        default=None, gt=0, description="Limit on the cost of the whole command, in the currency of --price-per-hour."
    )
    max_cost_per_hour: float | None = Field(
        default=None, gt=0, description="Limit on the price of the accelerators per hour, in the same currency."
    )
    max_watts: float | None = Field(
        default=None, gt=0, description="Limit on the predicted mean power during training, in watts."
    )
    max_memory_gib: float | None = Field(
        default=None, gt=0, description="Limit on the memory of the training process, in GiB."
    )
    min_auc: float | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description="Lowest acceptable AUC on validation; below it nothing is registered.",
    )
    min_auc_probability: float = Field(
        default=LIKELY,
        gt=0,
        lt=1,
        description="Least acceptable probability of reaching --min-auc, estimated from past runs.",
    )
    confidence: float = Field(
        default=LIKELY,
        ge=LIKELY,
        lt=1,
        description="Probability with which limits on time, energy and cost must hold; 0.5: on average.",
    )


class PromiseRequest(Group, frozen=True, title="Guaranteed quality"):
    """Quality that is guaranteed on held-out rows; without it the limits refer to validation."""

    min_auc_confidence: float | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description="Confidence with which --min-auc and --max-ne must hold on the test part, such as 0.95.",
    )
    max_ne: float | None = Field(
        default=None, gt=0, description="Highest acceptable NE (normalised entropy); above it nothing is registered."
    )
