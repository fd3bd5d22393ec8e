"""What a user asks for: one model for the command line, the Prefect form and Python."""

import math
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


class Objective(StrEnum):
    """What the chosen placement shall need least of, within the limits."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"


class Weights(BaseModel):
    """How much each quantity counts: the least product of powers, time^a energy^b cost^c, is chosen.

    A product and not a sum, because hours, kilowatt hours and money have no common unit: with `time=1,energy=0.5` one
    per cent of time is worth two per cent of energy, in whatever unit and whichever other candidates there are.
    `time=1,energy=1` is the energy-delay product (Gonzalez and Horowitz, IEEE JSSC 31(9), 1996).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    energy: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cost: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `energy`, or from `time=1,energy=0.5`.

        Raises:
            ValueError: a quantity is unknown or given twice, a weight is no positive number, or none is given.
        """
        known = ", ".join(Objective)
        weights: dict[str, float] = {}
        for part in text.split(","):
            name, equals, number = (piece.strip() for piece in part.partition("="))
            if name not in set(Objective):
                raise ValueError(f"{name!r} is unknown, use one of {known}, or weights such as time=1,energy=0.5")
            if name in weights:
                raise ValueError(f"{name} is weighted twice")
            try:
                weights[name] = float(number) if equals else 1.0
            except ValueError:
                raise ValueError(f"the weight {number!r} of {name} is not a number") from None
            if not (weights[name] > 0 and math.isfinite(weights[name])):
                raise ValueError(f"the weight {number} of {name} must be positive")
        return cls(**weights)

    @property
    def used(self) -> dict[Objective, float]:
        """The quantities that count, with their weights."""
        return {quantity: weight for quantity in Objective if (weight := getattr(self, quantity.value))}

    @property
    def words(self) -> str:
        """For instance `time`, or `time=1,energy=0.5`; `parse` reads it back."""
        used = self.used
        if len(used) == 1:
            return str(next(iter(used)))
        return ",".join(f"{quantity}={weight:g}" for quantity, weight in used.items())


def _checked_objective(text: str) -> str:
    return Weights.parse(text).words


class Billing(StrEnum):
    """How time is charged."""

    EXACT = "exact"
    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"


TRIALS = 9  # of a search without any budget
LIKELY = 0.5  # more likely than not: what the likeliest figure keeps
LOCAL_OFFERS = "local"
ALL_OFFERS = "all"


class DataFormat(StrEnum):
    """How the source is written."""

    CRITEO = "criteo"
    CSV = "csv"
    PARQUET = "parquet"


class TowerStrategy(StrEnum):
    """Which fields share a tower of a DMT."""

    AUTO = "auto"
    COHERENT = "coherent"
    DIVERSE = "diverse"
    ORDER = "order"


class SearchSpaceName(StrEnum):
    """What is searched."""

    SETTINGS = "settings"
    ARCHITECTURE = "architecture"


class SearchMethodName(StrEnum):
    """Who proposes what is tried next."""

    TPE = "tpe"
    RANDOM = "random"
    DNAS = "dnas"
    RL = "rl"
    TRANSFER = "transfer"


class SearchCost(StrEnum):
    """What the quality is weighed against."""

    TIME = "time"
    ENERGY = "energy"
    BYTES = "bytes"


class Limits(BaseModel):
    """Hard limits: a placement that is expected to break one is excluded, a run that reaches one stops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_hours: float | None = Field(default=None, gt=0, description="Wall-clock hours for tuning and training.")
    max_kwh: float | None = Field(default=None, gt=0, description="Energy of tuning and training, in kilowatt hours.")
    max_cost: float | None = Field(default=None, gt=0, description="Money, in the currency of --price-per-hour.")
    max_cost_per_hour: float | None = Field(
        default=None, gt=0, description="Price of the accelerators per hour, in the same currency."
    )
    max_watts: float | None = Field(
        default=None, gt=0, description="Mean power while training, in watts, as it is predicted."
    )
    max_memory_gib: float | None = Field(default=None, gt=0, description="Memory of the training process, in GiB.")
    min_auc: float | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description="Lowest acceptable AUC on validation: below it nothing is registered.",
    )
    min_auc_probability: float = Field(
        default=LIKELY,
        gt=0,
        lt=1,
        description="Least probability of --min-auc, judged from past runs where there are any.",
    )
    confidence: float = Field(
        default=LIKELY,
        ge=LIKELY,
        lt=1,
        description="Probability with which limits on time, energy, cost shall be kept; 0.5: by the likeliest figure.",
    )

    @model_validator(mode="after")
    def _check_probability(self) -> Self:
        if self.min_auc is None and self.min_auc_probability != LIKELY:
            raise ValueError(f"--min-auc-probability {self.min_auc_probability:g} means nothing without --min-auc")
        return self


class JobRequest(BaseModel):
    """What is to be trained, within which limits: what a choice of placement needs to know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = Field(
        default="ml-100k",
        description="Click log: file, folder, glob, comma-separated list, or a name that `shunter datasets` lists.",
    )
    format: DataFormat | None = Field(
        default=None, description="Format of the source; guessed from its name when absent."
    )
    schema_file: str | None = Field(
        default=None,
        description="YAML or JSON file that names the label, numeric, categorical and time columns.",
    )
    max_bad_share: float = Field(
        default=0.01, ge=0, le=1, description="Share of unreadable rows above which ingestion stops."
    )
    model: str = Field(
        default="dlrm",
        description="Model family: dlrm, dnn, deepfm, dcnv2, finalmlp, dhen, dmt or sequence; or auto, which lets "
        "tuning choose among the first six; or, to rank items along "
        "a graph, lightgcn, sage or hetero, which is trained once, whatever --trials and --ensemble-size.",
    )
    towers: int | None = Field(
        default=None,
        ge=1,
        description="Towers of --model dmt, one for each host; 4 when absent, or one for each field.",
    )
    objective: Annotated[str, AfterValidator(_checked_objective)] = Field(
        default="time",
        description="What to minimise within the limits: time, energy, cost, or weights such as time=1,energy=0.5.",
    )
    limits: Limits = Field(default=Limits(), description="Hard limits.")
    price_per_hour: float | None = Field(
        default=None,
        gt=0,
        description="Price of this machine per hour; needed by --max-cost, --max-cost-per-hour and --objective cost.",
    )
    billing: Billing = Field(
        default=Billing.EXACT,
        description="How time is charged: exact, or by started second, minute (both 60 s at least) or hour.",
    )
    trials: int | None = Field(
        default=None,
        ge=1,
        description=f"Settings to try; {TRIALS} when absent, or with --search-minutes or --search-kwh as many as fit.",
    )
    search_minutes: float | None = Field(
        default=None, gt=0, description="Longest search, in minutes; it counts against --max-hours too."
    )
    search_kwh: float | None = Field(
        default=None, gt=0, description="Most energy of the search, in kilowatt hours; it counts against --max-kwh too."
    )
    max_epochs: int = Field(
        default=9, ge=1, description="Longest training of one setting, in passes over the training part."
    )
    ensemble_size: int = Field(default=3, ge=1, description="Most models in the ensemble; 1 switches it off.")
    seed: int = Field(
        default=0,
        ge=0,
        description="Seed of the split, the initial weights, the order of batches and the search.",
    )
    explore: bool = Field(
        default=False,
        description="Take another batch size now and then, where past runs of this data promise that it needs less; "
        "set --min-auc with it.",
    )

    @property
    def weights(self) -> Weights:
        """The objective, with its weights."""
        return Weights.parse(self.objective)

    @property
    def most_trials(self) -> int | None:
        """Settings to try; None where only the search's time or energy ends it."""
        if self.trials is None and self.search_minutes is None and self.search_kwh is None:
            return TRIALS
        return self.trials

    @property
    def needs_price(self) -> str | None:
        """The first option that means nothing without a price; None when there is none."""
        if self.limits.max_cost is not None:
            return "--max-cost"
        if self.limits.max_cost_per_hour is not None:
            return "--max-cost-per-hour"
        return "--objective cost" if self.weights.cost else None

    @model_validator(mode="after")
    def _check_search_budget(self) -> Self:
        minutes, hours = self.search_minutes, self.limits.max_hours
        if minutes is not None and hours is not None and minutes > hours * 60:
            raise ValueError(f"--search-minutes {minutes:g} is more than --max-hours {hours:g}: lower it")
        kwh, limit = self.search_kwh, self.limits.max_kwh
        if kwh is not None and limit is not None and kwh > limit:
            raise ValueError(f"--search-kwh {kwh:g} is more than --max-kwh {limit:g}: lower it")
        return self

    @model_validator(mode="after")
    def _check_cost_per_hour(self) -> Self:
        limit, price = self.limits.max_cost_per_hour, self.price_per_hour
        if limit is not None and price is not None and price > limit and self._only_local():
            raise ValueError(f"--max-cost-per-hour {limit:g} is below the --price-per-hour of {price:g}: raise it")
        return self

    @model_validator(mode="after")
    def _check_price(self) -> Self:
        if self.price_per_hour is None and self.needs_price and self._only_local():
            raise ValueError(f"{self.needs_price} needs the price of this machine: add --price-per-hour")
        return self

    def _only_local(self) -> bool:
        """Whether this machine alone can be chosen."""
        return True


def parse_task_weights(text: str) -> dict[str, float]:
    """From `click=1,conversion=0.5`.

    Raises:
        ValueError: a part is no name with a number from 0 on, or a name comes twice.
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not (name and math.isfinite(weight) and weight >= 0) or name in weights:
            raise ValueError(f"{part.strip()!r} is no weight of a label: write each once, such as click=1")
        weights[name] = weight
    return weights


def _checked_task_weights(text: str | None) -> str | None:
    if text is not None:
        parse_task_weights(text)
    return text


class ClusterRequest(JobRequest):
    """One that the nodes of a cluster can serve instead of this machine."""

    cluster: str | None = Field(
        default=None,
        min_length=1,
        description="Ray cluster whose nodes are profiled and chosen among instead of this machine: host:port, "
        "ray://host:port, or auto for the one this machine is part of; Shunter must be installed on its nodes.",
    )
    cluster_resource: str | None = Field(
        default=None,
        min_length=1,
        description="Only nodes of --cluster that were started with this resource (`ray start --resources`).",
    )

    @model_validator(mode="after")
    def _check_cluster(self) -> Self:
        if self.cluster_resource is not None and self.cluster is None:
            raise ValueError(f"--cluster-resource {self.cluster_resource} means nothing without --cluster")
        return self

    @model_validator(mode="after")
    def _check_towers(self) -> Self:
        if self.towers is not None and self.model != "dmt":
            raise ValueError(f"--towers {self.towers} means nothing without --model dmt")
        return self


class TrainRequest(ClusterRequest):
    """One training, from click log to registered model."""

    processes: int = Field(
        default=1,
        ge=1,
        description="Processes that train each member of the ensemble together; an interrupted run may change it.",
    )
    fixed_threads: bool = Field(
        default=False,
        description="Keep the threads that were chosen, whatever the steps take: repetitions are then bitwise equal.",
    )
    tower_partition: TowerStrategy = Field(
        default=TowerStrategy.AUTO,
        description="Fields that share a tower of --model dmt: by their order, or learned in a brief training: those "
        "that interact (coherent) or that do not (diverse); auto lets the search try all three.",
    )
    task_weights: Annotated[str | None, AfterValidator(_checked_task_weights)] = Field(
        default=None,
        description="Weights of several labels in the loss, such as click=1,conversion=0.5; 1 where none is given.",
    )
    search_method: SearchMethodName = Field(
        default=SearchMethodName.TPE,
        description="Who proposes what is tried: tpe or random; transfer, which learns from other data sets; or, over "
        "architectures, dnas, which trains a super-net first, or rl, a policy.",
    )
    cold_start: bool = Field(
        default=False,
        description="Search as if nothing had been searched before; else tpe first tries what did best on the same or "
        "like data, and transfer learns from all, so that the same command may try other settings the next time.",
    )
    search_space: SearchSpaceName | None = Field(
        default=None,
        description="What is searched: settings of the family, or the architecture of a dlrm, layer by layer and table "
        "by table; settings when absent, architecture with --search-method dnas.",
    )
    search_cost: SearchCost | None = Field(
        default=None,
        description="What the search weighs NE against: time of a step, energy of a sample or bytes of the parameters; "
        "when absent the lowest NE alone counts.",
    )
    parallel_trials: int = Field(
        default=1, ge=1, description="Trials at a time: in processes that share the threads, or on nodes of --cluster."
    )
    search_storage: str | None = Field(
        default=None,
        min_length=1,
        description="Database of the search, such as postgresql://... or a path that ends in .db or .journal, which "
        "several machines or later runs share; the run's own folder when absent.",
    )
    register_as: str = Field(default="shunter", min_length=1, description="Name of the registered model in MLflow.")

    @property
    def space(self) -> SearchSpaceName:
        """What is searched."""
        is_dnas = self.search_method == SearchMethodName.DNAS
        return self.search_space or (SearchSpaceName.ARCHITECTURE if is_dnas else SearchSpaceName.SETTINGS)

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        if self.search_method == SearchMethodName.DNAS and self.space != SearchSpaceName.ARCHITECTURE:
            raise ValueError("--search-method dnas searches an architecture: leave out --search-space settings")
        if self.space == SearchSpaceName.ARCHITECTURE and self.model != "dlrm":
            raise ValueError(
                f"an architecture is searched for --model dlrm only, not {self.model}: leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _check_processes(self) -> Self:
        if self.cluster is not None and self.processes > 1:
            raise ValueError(
                f"--processes {self.processes} works on this machine only, leave it out with --cluster {self.cluster}"
            )
        return self


class SelectRequest(ClusterRequest):
    """One choice of a placement, without the training; accelerators that are not here can be asked for."""

    offers: str = Field(
        default=ALL_OFFERS,
        min_length=1,
        description="Accelerators to compare: local, all (the catalogue's too), or names of its rows, with commas.",
    )
    probe_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Seconds after which no further measurement on this machine begins; 0 predicts only.",
    )

    def _only_local(self) -> bool:
        return self.offers.strip().lower() == LOCAL_OFFERS
