"""The command that simulates a model on ever more hosts."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shunter.flows.command.flow_commands import AS_JSON
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line, say
from shunter.requests.plan_scale import PlanScaleRequest

if TYPE_CHECKING:
    from shunter.planner.parallel.scale import ScalePoint, ScaleReport

OUT = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    default=Path("scale.png"),
    annotation=Annotated[Path, typer.Option("--out", help="File of the picture.")],
)


@with_options(PlanScaleRequest, OUT, AS_JSON)
def scale(**options: Any) -> None:
    """Simulate a model on 1 to 128 hosts."""
    as_json, out = options.pop("as_json"), options.pop("out")
    with one_sentence_errors(as_json=as_json):
        request = requested(PlanScaleRequest, options)
        report = _simulated(request)
        _draw(report, out)
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
    from shunter.engine.fixed import read_fixed
    from shunter.errors import RequestError
    from shunter.ingestion.request import ingest_request
    from shunter.models.spec import ModelSpec
    from shunter.planner.describe import spec_of
    from shunter.planner.parallel.demand import demand_of
    from shunter.planner.parallel.scale import scale as simulate_hosts
    from shunter.planner.parallel.tower_demand import tower_workload
    from shunter.requests import TrainRequest
    from shunter.requests.plan import DevicesRequest

    source = {name: value for name, value in request.source.model_dump().items() if value is not None}
    dataset, _ = ingest_request(TrainRequest(**source))
    model = request.architecture.model
    spec = spec_of(model, request.architecture.towers, read_fixed(model, request.architecture.set).architecture)
    if not isinstance(spec, ModelSpec):
        raise RequestError(f"A plan divides one model of clicks, not --model {model}: name one.")
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


def _draw(report: "ScaleReport", out: Path) -> None:
    from shunter.errors import RequestError
    from shunter.reporting.scale_figure import draw_scale

    try:
        draw_scale(report, out)
    except (OSError, ValueError) as error:
        raise RequestError(f"The picture cannot be written to {out} ({error}): name another file.") from error


def _print(report: "ScaleReport") -> None:
    from rich import box
    from rich.table import Table

    from shunter.planner.parallel.scale import WAYS

    ways = [way for way in WAYS if any(way in point.step_seconds for point in report.points)]
    say(
        f"{report.model} on {report.data}, {report.batch_per_device:,} samples of each device in a step. All is "
        f"simulated. {report.told}"
    )
    table = Table("hosts", "devices", *ways, box=box.SIMPLE, title="milliseconds of a step, and efficiency")
    for point in report.points:
        cells = [
            f"{1e3 * point.step_seconds[way]:.3g}, {report.efficiency(point, way):.0%}"
            if way in point.step_seconds
            else "-"
            for way in ways
        ]
        table.add_row(str(point.hosts), str(point.devices), *cells)
    console.print(table)
    last = report.points[-1]
    print_line(
        f"On {last.devices} devices the flat exchange takes {last.exchange_share:.0%} of its step. Exchanged host by "
        f"host it is {last.speedup('by host'):.2f} times as fast, with vectors compressed {report.compression:g} times "
        f"{last.speedup('compressed'):.2f} times{_told_of_towers(last)}."
    )
    if "searched" in ways:
        print_line(
            "Searched plans hold the tables as they are, some of which lie on one device alone, and look at every "
            "message; the other ways divide all tables evenly, which few or small ones do not allow. Compare searched "
            "plans by how they grow."
        )


def _told_of_towers(point: "ScalePoint") -> str:
    """What a model with towers gains, and what is not known of it."""
    if "towers" not in point.step_seconds:
        return "; what towers compute less is counted for --model dlrm and dcnv2"
    return (
        f", and {point.speedup('towers'):.2f} times with the layers of a model with such towers, which computes other "
        "things; what that costs in quality is not simulated: train both"
    )
