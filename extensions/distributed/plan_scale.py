"""The command `shunter plan scale`, which simulates a model on a growing number of hosts."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from shunter.errors import RequestError
from shunter.flows.command.flow_commands import AS_JSON
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line, say
from shunter.masked_console import is_verbose
from shunter.requests.architecture import ModelRequest
from shunter.requests.groups import Request
from shunter.requests.source import DataRequest

if TYPE_CHECKING:
    from shunter.extensions.distributed.planning.scale import ScaleReport

DPI = 130
LABELS = {"searched": "searched, tables as they are"}  # the other ways divide the tables evenly

OUT = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    default=Path("scale.png"),
    annotation=Annotated[Path, typer.Option("--out", help="File of the picture.")],
)

NOTES = (
    "Searched plans keep the tables whole, some of them on one device alone, and count every message; the other ways "
    "divide all tables evenly. Compare searched plans by how they grow. Towers are another model: its quality is not "
    "simulated, so train both."
)


class PlanScaleRequest(Request, frozen=True, title="Plan of scale"):
    """Request to simulate a model's training speed on growing numbers of hosts, for several ways to divide it."""

    source: DataRequest = Field(default=DataRequest(), description="Source of the rows.")
    architecture: ModelRequest = Field(default=ModelRequest(), description="The model.")
    accelerator: str = Field(default="NVIDIA A100 SXM4 40GB", min_length=1, description="Accelerator of the catalogue.")
    devices_per_host: int = Field(default=8, ge=1, le=64, description="Accelerators of each host.")
    network_gbit: float = Field(
        default=1600.0, gt=0, allow_inf_nan=False, description="Network bandwidth of each host, in Gbit/s."
    )
    most_hosts: int = Field(
        default=128, ge=1, le=512, description="Largest number of hosts; 1, 2, 4, ... up to this number are simulated."
    )
    batch_per_device: int = Field(default=2048, ge=1, description="Samples per step on each accelerator.")
    precision: Literal["fp32", "bf16"] = Field(
        default="fp32", description="Precision of the dense layers and their gradients."
    )
    compression: float = Field(
        default=4.0,
        ge=1,
        le=64,
        description="Factor by which towers compress the embedding vectors that are sent between hosts.",
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...


@with_options(PlanScaleRequest, OUT, AS_JSON)
def scale(**options: Any) -> None:
    """Simulate a model on 1 to 128 hosts."""
    as_json, out = options.pop("as_json"), options.pop("out")
    with one_sentence_errors(as_json=as_json):
        request = requested(PlanScaleRequest, options)
        report = _simulated(request)
        try:
            draw_scale(report, out)
        except (OSError, ValueError) as error:
            raise RequestError(f"The picture cannot be written to {out} ({error}): name another file.") from error
        if as_json:
            print_json(report.model_dump(mode="json"))
        else:
            _print(report)
            print_line(f"Picture: {out}.")


def _simulated(request: PlanScaleRequest) -> "ScaleReport":
    from shunter.hardware.catalogue.rows import load_catalogue
    from shunter.models.names import check_model

    check_model(request.architecture.model)
    load_catalogue().find_accelerator(request.accelerator)
    from shunter.engine.overrides import read_overrides
    from shunter.extensions.distributed.plan_request import DevicesRequest
    from shunter.extensions.distributed.planning.demand import demand_of
    from shunter.extensions.distributed.planning.scale import scale as simulate_hosts
    from shunter.extensions.distributed.planning.tower_step import tower_workload
    from shunter.ingestion.request import ingest_request
    from shunter.models.spec import ModelSpec
    from shunter.planner.describe import spec_of
    from shunter.requests import TrainRequest

    source = {name: value for name, value in request.source.model_dump().items() if value is not None}
    dataset, _ = ingest_request(TrainRequest(**source))
    model = request.architecture.model
    spec = spec_of(
        model, request.architecture.towers, read_overrides(model, request.architecture.settings).architecture
    )
    if not isinstance(spec, ModelSpec):
        raise RequestError(f"A plan is for one click model, not for --model {model}: name a single model.")
    place = DevicesRequest(
        accelerator=request.accelerator,
        devices=request.devices_per_host,
        devices_per_host=request.devices_per_host,
        network_gbit=request.network_gbit,
    )
    hosts = [2**power for power in range(10) if 2**power <= request.most_hosts]
    return simulate_hosts(
        demand_of(dataset, spec),
        place,
        (),
        hosts,
        batch_per_device=request.batch_per_device,
        compression=request.compression,
        precision=request.precision,
        with_towers=lambda hosts: tower_workload(dataset, spec, hosts, request.compression),
    )


def _print(report: "ScaleReport") -> None:
    from shunter.extensions.distributed.planning.scale import WAYS

    ways = [way for way in WAYS if any(way in point.step_seconds for point in report.points)]
    say(f"{report.model} on {report.data}, {report.batch_per_device:,} samples per device and step. All is simulated.")
    rows = [
        (
            str(point.hosts),
            str(point.devices),
            *(
                f"{number(1e3 * point.step_seconds[way])}, {report.efficiency(point, way):.0%}"
                if way in point.step_seconds
                else "-"
                for way in ways
            ),
        )
        for point in report.points
    ]
    caption = "Milliseconds of a step, and efficiency"
    print_table(console, TextTable(("hosts", "devices", *ways), rows, caption))
    last = report.points[-1]
    gains = ", ".join(
        f"{way} {last.speedup(way):.2f} x" for way in ("by host", "compressed", "towers") if way in last.step_seconds
    )
    print_line(f"On {last.devices} devices the flat exchange takes {last.exchange_share:.0%} of its step: {gains}.")
    if is_verbose():
        print_line(report.told)
        print_line(NOTES)


def draw_scale(report: "ScaleReport", path: Path) -> Path:
    """Plot samples per second over devices on log axes, a line for each way to divide the model; return the path."""
    from matplotlib.figure import Figure

    from shunter.extensions.distributed.planning.scale import WAYS

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for way in WAYS:
        points = [point for point in report.points if way in point.step_seconds]
        if points:
            devices = [point.devices for point in points]
            rates = [point.devices * report.batch_per_device / point.step_seconds[way] for point in points]
            axes.plot(devices, rates, marker="o", label=LABELS.get(way, way))
    first = report.points[0]
    ideal = max(first.devices * report.batch_per_device / seconds for seconds in first.step_seconds.values())
    axes.plot(
        [point.devices for point in report.points],
        [ideal * point.devices / first.devices for point in report.points],
        color="grey",
        linestyle=":",
        label="as on one host",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("devices")
    axes.set_ylabel("samples a second (simulated)")
    axes.set_title(f"{report.model} on {report.data}, {report.batch_per_device:,} samples of each device in a step")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    return path
