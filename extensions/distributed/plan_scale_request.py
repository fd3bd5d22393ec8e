"""Request of `shunter plan scale`: one model for the command line and Python."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from shunter.requests.architecture import ModelRequest
from shunter.requests.groups import Request
from shunter.requests.source import DataRequest


class PlanScaleRequest(Request, frozen=True, title="Plan of scale"):
    """Training speed of a model on growing numbers of hosts, for several ways to divide it."""

    source: DataRequest = Field(default=DataRequest(), description="Where the rows come from.")
    architecture: ModelRequest = Field(default=ModelRequest(), description="The model.")
    accelerator: str = Field(default="NVIDIA A100 SXM4 40GB", min_length=1, description="Accelerator of the catalogue.")
    devices_per_host: int = Field(default=8, ge=1, le=64, description="Accelerators of each host.")
    network_gbit: float = Field(
        default=1600.0, gt=0, allow_inf_nan=False, description="Network of each host, in Gbit/s."
    )
    most_hosts: int = Field(default=128, ge=1, le=512, description="Most hosts; 1, 2, 4 and so on are simulated.")
    batch_per_device: int = Field(default=2048, ge=1, description="Samples of a step on each accelerator.")
    precision: Literal["fp32", "bf16"] = Field(
        default="fp32", description="Precision of the dense layers and their gradients."
    )
    compression: float = Field(
        default=4.0, ge=1, le=64, description="Factor by which towers compress what crosses hosts."
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
