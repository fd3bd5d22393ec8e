"""What a user asks for: one model for the command line, the Prefect form and Python."""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Objective(StrEnum):
    """What the chosen placement shall need least of, within the limits."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"


class DataFormat(StrEnum):
    """How the source is written."""

    CRITEO = "criteo"
    CSV = "csv"
    PARQUET = "parquet"


class Limits(BaseModel):
    """Hard limits: a placement that is expected to break one is excluded, a run that reaches one stops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_hours: float | None = Field(default=None, gt=0, description="Wall-clock hours for tuning and training.")
    max_kwh: float | None = Field(default=None, gt=0, description="Energy of tuning and training, in kilowatt hours.")
    max_cost: float | None = Field(default=None, gt=0, description="Money, in the currency of --price-per-hour.")
    max_memory_gib: float | None = Field(default=None, gt=0, description="Memory of the training process, in GiB.")
    min_auc: float | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description="Lowest acceptable AUC on validation: below it nothing is registered.",
    )


class TrainRequest(BaseModel):
    """One training, from click log to registered model."""

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
    model: str = Field(default="dlrm", description="Model family.")
    objective: Objective = Field(default=Objective.TIME, description="What to minimise within the limits.")
    limits: Limits = Field(default=Limits(), description="Hard limits.")
    price_per_hour: float | None = Field(
        default=None,
        gt=0,
        description="Price of this machine per hour; needed by --max-cost and --objective cost.",
    )
    trials: int = Field(default=9, ge=1, description="Hyper-parameter settings to try.")
    max_epochs: int = Field(
        default=9, ge=1, description="Longest training of one setting, in passes over the training part."
    )
    processes: int = Field(
        default=1,
        ge=1,
        description="Processes that train each member of the ensemble together; an interrupted run may change it.",
    )
    ensemble_size: int = Field(default=3, ge=1, description="Most models in the ensemble; 1 switches it off.")
    seed: int = Field(
        default=0,
        ge=0,
        description="Seed of the split, the initial weights, the order of batches and the search.",
    )
    register_as: str = Field(default="shunter", min_length=1, description="Name of the registered model in MLflow.")

    @model_validator(mode="after")
    def _check_price(self) -> Self:
        if self.price_per_hour is None and (self.limits.max_cost is not None or self.objective is Objective.COST):
            raise ValueError("a limit on cost or the objective cost needs the price: add --price-per-hour")
        return self
