"""Request of `shunter plan`: a pydantic class for the options of the command line and for Python."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shunter.model_families import AUTO, is_ranking
from shunter.requests.architecture import ModelRequest
from shunter.requests.groups import Group, Request
from shunter.requests.source import DataRequest
from shunter.secrets import check_is_path


class DevicesRequest(Group, frozen=True, title="Devices"):
    """Devices over which the model is divided."""

    devices: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Number of devices that train together: processes, or units of --accelerator; if omitted, 2.",
    )
    accelerator: str | None = Field(
        default=None,
        min_length=1,
        description="Accelerator from the catalogue, such as 'NVIDIA A100 SXM4 80GB'; if omitted, this processor.",
    )
    devices_per_host: int | None = Field(
        default=None,
        ge=1,
        description="Devices per host; if omitted, all devices on one host, or with --accelerator at most 8 per host.",
    )
    network_gbit: float = Field(
        default=100.0,
        gt=0,
        allow_inf_nan=False,
        description="Network bandwidth of each host, in Gbit/s.",
    )
    machine: str | None = Field(
        default=None,
        min_length=1,
        description="YAML file of devices and links, instead of --devices and --accelerator.",
    )

    _machine_is_path = field_validator("machine")(check_is_path)

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        if self.machine is not None:
            for name in ("devices", "accelerator", "devices_per_host"):
                if getattr(self, name) is not None:
                    option = "--" + name.replace("_", "-")
                    raise ValueError(f"--machine already describes the devices: leave out {option}")
        elif self.devices_per_host is not None and (self.devices or 2) % self.devices_per_host:
            count = f"--devices {self.devices or 2}"
            raise ValueError(
                f"{count} is not a multiple of --devices-per-host {self.devices_per_host}: change one of them"
            )
        return self


class PlanRequest(Request, frozen=True, title="Plan"):
    """Request for a plan that divides a model, trained on a data set, over devices."""

    source: DataRequest = Field(default=DataRequest(), description="Source of the rows.")
    architecture: ModelRequest = Field(default=ModelRequest(), description="The model.")
    place: DevicesRequest = Field(default=DevicesRequest(), description="The devices.")
    batch_size: int = Field(default=4096, ge=1, description="Samples per step, summed over all devices.")
    communication: Literal["fp32", "fp16", "bf16", "any"] = Field(
        default="fp32",
        description="Precision of the pooled rows and gradients that are sent; any: the fastest in simulation.",
    )
    most_batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Largest batch the plan may use instead of --batch-size where that trains faster.",
    )
    allow_towers: bool = Field(
        default=False,
        description="Also consider a model with a tower on each host (--model dmt).",
    )
    max_device_gib: float | None = Field(
        default=None, gt=0, le=2**20, description="Memory limit of each device, in GiB; if omitted, its whole memory."
    )
    epochs: int = Field(
        default=1, ge=1, le=10_000, description="Number of epochs to which --max-hours, --max-kwh and --max-cost apply."
    )
    max_hours: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Limit on the simulated time of --epochs, in hours."
    )
    max_kwh: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Limit on the energy of all devices for --epochs, in kWh."
    )
    max_cost: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Limit on the cost of --epochs; needs --price-per-hour."
    )
    price_per_hour: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Price of one device per hour."
    )
    search_seconds: float = Field(
        default=5.0, ge=0, le=3600, description="Longest duration of the plan search, in seconds."
    )
    space: Literal["exact", "executable", "all"] = Field(
        default="exact",
        description="Kinds of plans to search: exact, executable (all that train --plan supports), or all.",
    )
    overlap: bool = Field(
        default=False,
        description="Simulate dense gradient exchange that overlaps the backward pass of the tables.",
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of the search.")

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

    @property
    def precision(self) -> Literal["fp32", "fp16", "bf16"]:
        """Return the requested precision of messages; fp32 for `any`, until the search chooses one."""
        return "fp32" if self.communication == "any" else self.communication

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.most_batch_size is not None and self.most_batch_size < self.batch_size:
            least = f"--batch-size {self.batch_size}"
            raise ValueError(f"--most-batch-size {self.most_batch_size} is below {least}: raise it, or leave it out")
        if self.max_cost is not None and self.price_per_hour is None:
            raise ValueError("--max-cost needs a price: add --price-per-hour")
        if self.architecture.model == AUTO or is_ranking(self.architecture.model):
            raise ValueError(
                f"a plan is for one click model, not for --model {self.architecture.model}: name a single model"
            )
        return self
