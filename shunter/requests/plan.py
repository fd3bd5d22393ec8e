"""Request of `shunter plan`: one model for the command line and Python."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from shunter.model_families import AUTO, is_ranking
from shunter.requests.architecture import ModelRequest
from shunter.requests.groups import Group, Request
from shunter.requests.source import DataRequest


class DevicesRequest(Group, frozen=True, title="Devices"):
    """The devices that the model is divided over."""

    devices: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Devices that train together: processes of this machine, or accelerators of --accelerator; if "
        "omitted, those of --machine, or 2.",
    )
    accelerator: str | None = Field(
        default=None,
        min_length=1,
        description="Accelerator of the catalogue that the devices are, such as 'NVIDIA A100 SXM4 80GB'; if omitted, "
        "this machine's processor, shared by as many processes.",
    )
    devices_per_host: int | None = Field(
        default=None, ge=1, description="Devices of each host; if omitted, all of them, or 8 of --accelerator."
    )
    network_gbit: float = Field(
        default=100.0,
        gt=0,
        allow_inf_nan=False,
        description="Network between hosts, in Gbit/s of each host; it is taken as said.",
    )
    machine: str | None = Field(
        default=None,
        min_length=1,
        description="YAML file of the devices and the links between them, instead of the options above.",
    )

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        if self.machine is not None:
            for name in ("devices", "accelerator", "devices_per_host"):
                if getattr(self, name) is not None:
                    option = "--" + name.replace("_", "-")
                    raise ValueError(f"--machine names the devices itself: leave out {option}")
        elif self.devices_per_host is not None and (self.devices or 2) % self.devices_per_host:
            count = f"--devices {self.devices or 2}"
            raise ValueError(f"{count} is no multiple of --devices-per-host {self.devices_per_host}: change one")
        return self


class PlanRequest(Request, frozen=True, title="Plan"):
    """Which model over which data is divided over which devices."""

    source: DataRequest = Field(default=DataRequest(), description="Where the rows come from.")
    architecture: ModelRequest = Field(default=ModelRequest(), description="The model.")
    place: DevicesRequest = Field(default=DevicesRequest(), description="The devices.")
    batch_size: int = Field(
        default=4096, ge=1, description="Samples of a step, of all devices together; each takes an equal part."
    )
    communication: Literal["fp32", "fp16", "bf16", "any"] = Field(
        default="fp32",
        description="Precision in which pooled rows and their gradients travel: fp32, fp16 or bf16; or any, the faster "
        "of fp32 and fp16 as simulated (without what converting takes), which may change what is learned.",
    )
    most_batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Let the plan take batches of twice, four times and so on --batch-size, up to so many samples, "
        "where more samples a second are trained; that changes what is learned, and by how much is not measured.",
    )
    allow_towers: bool = Field(
        default=False,
        description="Let the plan be of the same model with a tower on each host (--model dmt) where that is faster: "
        "another model, whose quality is not measured here.",
    )
    max_device_gib: float | None = Field(
        default=None, gt=0, le=2**20, description="Most memory of each device in GiB; if omitted, what it has."
    )
    epochs: int = Field(default=1, ge=1, le=10_000, description="Passes over the training part that are reckoned with.")
    max_hours: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Most hours that these passes may take, as simulated."
    )
    max_kwh: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Most energy that all devices may take for them, in kWh."
    )
    max_cost: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Most that they may cost; needs --price-per-hour."
    )
    price_per_hour: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Price of an hour of each device."
    )
    search_seconds: float = Field(default=5.0, ge=0, le=3600, description="Longest search, in seconds.")
    space: Literal["exact", "executable", "all"] = Field(
        default="exact",
        description="Plans that are searched: exact, those under which the model learns as in one process; executable, "
        "all that shunter train --plan runs, with divided columns, and copies of frequent rows on every device while a "
        "table's other rows travel one by one; or all, where dense layers are divided too, by outputs, by inputs or by "
        "where their weights lie, over all devices or within each host, which is only simulated.",
    )
    overlap: bool = Field(
        default=False,
        description="Simulate an exchange of the layers' gradients beside the tables' backward pass, as torch's DDP "
        "has it; shunter train exchanges them after it.",
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of the search.")

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

    @property
    def precision(self) -> Literal["fp32", "fp16", "bf16"]:
        """Return the precision of messages until one is chosen."""
        return "fp32" if self.communication == "any" else self.communication

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.most_batch_size is not None and self.most_batch_size < self.batch_size:
            least = f"--batch-size {self.batch_size}"
            raise ValueError(f"--most-batch-size {self.most_batch_size} is below {least}: raise it, or leave it out")
        if self.max_cost is not None and self.price_per_hour is None:
            raise ValueError("--max-cost has nothing to reckon with: add --price-per-hour")
        if self.architecture.model == AUTO or is_ranking(self.architecture.model):
            raise ValueError(f"a plan divides one model of clicks, not --model {self.architecture.model}: name one")
        return self
