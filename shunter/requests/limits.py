"""Request groups of hard limits, and of the guaranteed quality of a registered model."""

from pydantic import Field

from shunter.requests.groups import Group

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
