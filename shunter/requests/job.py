"""Requests for training jobs: the base of all (data, model, limits, effort), and the request of `shunter select`."""

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from shunter.model_families import PROBLEMS, problem_of
from shunter.requests.architecture import ModelRequest
from shunter.requests.effort import Effort, EnsembleRequest
from shunter.requests.groups import Request
from shunter.requests.limits import Limits, ObjectiveText, Weights
from shunter.requests.placement import ClusterRequest, PlacementRequest, Pricing
from shunter.requests.search import SearchBudget
from shunter.requests.source import DataRequest, PartsRequest


def _check_name(name: str) -> str:
    if not name.strip() or name.startswith(".") or any(letter in name for letter in "/:@"):
        raise ValueError("the name must not contain /, : or @, or begin with a full stop")
    return name


def model_name_of(data: str) -> str:
    """Return a registered model's name, made from the data's name by replacing characters that MLflow refuses."""
    return re.sub(r"[/:@]", "-", data).strip().lstrip(".") or "shunter"


RegisteredName = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"pattern": r"^[^/:@.][^/:@]*$"}),
    AfterValidator(_check_name),
]


class JobRequest(Request, frozen=True):
    """Training job within limits: the options that the choice of a placement needs."""

    job_kind: ClassVar[Literal["train", "nightly"]] = "train"  # kind of past runs to learn from
    searches: ClassVar[bool] = True  # whether a search precedes the training of members

    source: DataRequest = Field(default=DataRequest(), description="Source of the rows.")
    architecture: ModelRequest = Field(default=ModelRequest(), description="The model.")
    objective: ObjectiveText = Field(
        default="time",
        description="What to minimise: time, energy, cost, carbon, edp, or weights such as time=1,energy=0.5.",
    )
    limits: Limits = Field(default=Limits(), description="Hard limits.")
    pricing: Pricing = Field(default=Pricing(), description="Price per hour of the machine, and how time is charged.")
    search: SearchBudget = Field(default=SearchBudget(), description="Search before the training.")
    training: Effort = Field(default=Effort(), description="Amount of training.")
    ensemble: EnsembleRequest = Field(
        default=EnsembleRequest(), description="Models that are trained and combined to an ensemble."
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=2**32 - 1,  # the largest that NumPy takes
        description="Random seed of the split, the initial weights, the order of batches and the search.",
    )
    placement: PlacementRequest = Field(default=PlacementRequest(), description="Placements to choose from.")

    @property
    def data(self) -> str:
        """Return the click log that the request names."""
        return self.source.data

    @property
    def model(self) -> str:
        """Return the requested model family."""
        return self.architecture.model

    @property
    def longest_epochs(self) -> int:
        """Return the largest number of passes over the training set for one setting."""
        return self.training.max_epochs or int(PROBLEMS.capability(problem_of(self.model), "default_max_epochs"))

    @property
    def weights(self) -> Weights:
        """Return the objective of the request with its weights."""
        return Weights.parse(self.objective)

    @property
    def needs_price(self) -> str | None:
        """Return the first option that requires a price; None if there is none."""
        if self.limits.max_cost is not None:
            return "--max-cost"
        if self.limits.max_cost_per_hour is not None:
            return "--max-cost-per-hour"
        return "--objective cost" if self.weights.cost else None

    @model_validator(mode="after")
    def _check_search_budget(self) -> Self:
        minutes, hours = self.search.search_minutes, self.limits.max_hours
        if minutes is not None and hours is not None and minutes > hours * 60:
            raise ValueError(f"--search-minutes {minutes:g} is more than --max-hours {hours:g}: lower the former")
        kwh, limit = self.search.search_kwh, self.limits.max_kwh
        if kwh is not None and limit is not None and kwh > limit:
            raise ValueError(f"--search-kwh {kwh:g} is more than --max-kwh {limit:g}: lower the former")
        return self

    @model_validator(mode="after")
    def _check_price(self) -> Self:
        limit, price = self.limits.max_cost_per_hour, self.pricing.price_per_hour
        if not self._only_local():
            return self
        if limit is not None and price is not None and price > limit:
            raise ValueError(
                f"the limit --max-cost-per-hour {limit:g} is below the --price-per-hour of {price:g}: raise the limit"
            )
        if price is None and self.needs_price and self.pricing.prices_path is None:
            raise ValueError(
                f"the option {self.needs_price} needs the price of this machine: add --price-per-hour or --prices"
            )
        return self

    @model_validator(mode="after")
    def _check_grid(self) -> Self:
        if self.weights.carbon and self.pricing.grid is None:
            raise ValueError("--objective carbon needs the carbon intensity of the electricity: add --grid")
        return self

    def _only_local(self) -> bool:
        """Return True if only this machine can be chosen."""
        return True


LOCAL_OFFERS = "local"
ALL_OFFERS = "all"


class SelectRequest(JobRequest, frozen=True):
    """Request to choose a placement without training; it may include accelerators that this machine does not have."""

    source: PartsRequest = Field(default=PartsRequest(), description="Source of the rows.")
    nodes: ClusterRequest = Field(default=ClusterRequest(), description="Nodes to choose from.")
    offers: str = Field(
        default=ALL_OFFERS,
        min_length=1,
        description="Accelerators to compare: local, all (also clearly better ones of the catalogue), or names.",
    )
    probe_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Seconds after which no further probe on this machine begins; 0: predict only.",
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

    def _only_local(self) -> bool:
        return self.offers.strip().lower() == LOCAL_OFFERS
