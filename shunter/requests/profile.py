"""What a user asks of `shunter profile`: one model for the command line, the Prefect form and Python."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shunter.requests.training import DataFormat


class ProfileRequest(BaseModel):
    """The machine alone, or beside it the stalls of a training of one model on one data set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = Field(default=None, description="Model family whose stalls to find; needs --data.")
    data: str | None = Field(
        default=None,
        description="Click log to find stalls with: file, folder, glob, or a name that `shunter datasets` lists.",
    )
    format: DataFormat | None = Field(
        default=None, description="Format of the source; guessed from its name when absent."
    )
    schema_file: str | None = Field(
        default=None, description="YAML or JSON file that names the label, numeric, categorical and time columns."
    )
    accelerator: Literal["cpu", "cuda"] | None = Field(
        default=None, description="On which to find stalls; the GPUs where there are some when absent."
    )
    batch_size: int = Field(default=512, ge=1, description="Samples a step of each device.")
    precision: Literal["fp32", "bf16"] = Field(default="fp32", description="Of the dense part, fp32 or bf16.")
    devices: int | None = Field(
        default=None, ge=1, description="Processes that train together; all GPUs or two processes when absent."
    )
    network_gbit: float = Field(
        default=10.0, gt=0, description="Network between simulated machines, in Gbit/s of each machine."
    )
    seconds: float = Field(
        default=45.0, gt=0, description="Seconds after which the runs of the stalls are not repeated once more."
    )

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        if self.model is not None and self.data is None:
            raise ValueError("the stalls of a model are found on data: add --data, for instance --data ml-100k")
        return self
