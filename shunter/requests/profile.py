"""Request of `shunter profile`: one pydantic model for the command line, the Prefect form and Python."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from shunter.model_families import AUTO, MODEL_FAMILIES
from shunter.requests.groups import Group, Request
from shunter.requests.source import FORMATS


class StallRequest(Group, frozen=True, title="Advanced: stalls"):
    """Training whose stalls are measured."""

    accelerator: Literal["cpu", "cuda"] | None = Field(
        default=None,
        description="Accelerator whose stalls are measured; if omitted, the GPUs, or the processor without GPUs.",
    )
    batch_size: int = Field(default=512, ge=1, description="Batch size: samples per step on each device.")
    precision: Literal["fp32", "bf16"] = Field(
        default="fp32", description="Precision of the dense layers, fp32 or bf16."
    )
    devices: int | None = Field(
        default=None,
        ge=1,
        description="Number of processes that train together; if omitted, one per GPU, or two without GPUs.",
    )
    network_gbit: float = Field(
        default=10.0, gt=0, description="Network bandwidth of each simulated machine, in Gbit/s."
    )
    seconds: float = Field(
        default=45.0, gt=0, description="Seconds after which measurements are not repeated any more."
    )


class ProfileRequest(Request, frozen=True):
    """Profile of the machine, optionally with the stalls of one model on one data set."""

    data: str | None = Field(
        default=None,
        description="Click log to measure stalls on: file, folder, glob, or a name from `shunter datasets`.",
    )
    format: str | None = Field(
        default=None,
        description="Format of the log, such as csv, parquet or movielens; guessed if omitted.",
        json_schema_extra=lambda schema: schema.update(enum=[*FORMATS.names]),
    )
    schema_file: str | None = Field(
        default=None, description="YAML or JSON file that names the label, numeric, categorical and time columns."
    )
    model: str | None = Field(
        default=None,
        description="Model family whose stalls are measured; needs --data.",
        json_schema_extra=lambda schema: schema.update(enum=[*MODEL_FAMILIES.names, AUTO]),
    )
    stalls: StallRequest = Field(default=StallRequest(), description="Training run whose stalls are measured.")

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        if self.model is not None and self.data is None:
            raise ValueError("measuring the stalls of a model needs data: add --data, for instance --data ml-100k")
        return self
