"""Flow of `shunter plan`, which finds the devices of each embedding table of a model by simulation.

The figure and the Chrome trace of the simulated step have a line for each device and link, and a bar for each task.
"""

import json
from pathlib import Path
from typing import Annotated

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from shunter.engine.data.dataset import Dataset
from shunter.engine.overrides import read_overrides
from shunter.errors import RequestError
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.planning.calibration import read_executed
from shunter.extensions.distributed.planning.plan import plan_text
from shunter.extensions.distributed.planning.proposals import find_plan
from shunter.extensions.distributed.planning.report import PlanReport
from shunter.hardware.types import HardwareProfile
from shunter.ingestion.sources.guard import is_foreign_request
from shunter.models.spec import ModelSpec
from shunter.planner.describe import spec_of
from shunter.requests import TrainRequest
from shunter.requests.groups import shown
from shunter.settings import Settings
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.ingest import ingest
from shunter.tasks.profile import profile_machine
from shunter.tasks.run_log import markdown_table, show_result
from shunter.tracking.reports import log_files
from shunter.tracking.runs import closing, open_run, start_run

DPI = 130
COLOURS = {
    "ids": "#d97b1f",
    "lookup": "#2563a8",
    "vectors": "#c9a26b",
    "forward": "#3d8b50",
    "backward": "#7fb38a",
    "gradients": "#b5403a",
    "update": "#6fb1e0",
    "reduce": "#7b4fa3",
    "optimizer": "#b8c4d0",
}
MOST_LINES = 40  # largest number of devices and links in the figure
MICROSECONDS = 1e6


@flow(name="plan", flow_run_name=named_by("data", "model"), on_failure=[notify], on_crashed=[notify])
def plan(
    request: Annotated[PlanRequest, shown(PlanRequest())] = PlanRequest(),  # noqa: B008 - frozen
    out: str = "plan.yaml",
) -> PlanReport:
    """Find the placement of each table, and write the plan, its picture and its trace.

    Args:
        request: Model, data, devices and search.
        out: File of the plan; picture and trace are written beside it. In a run of a Prefect deployment only the
            file's name is used, in a folder below SHUNTER_HOME.
    """
    source = {name: value for name, value in request.source.model_dump().items() if value is not None}
    dataset = ingest(TrainRequest(**source).model_copy(update={"model": request.architecture.model}))
    overrides = read_overrides(request.architecture.model, request.architecture.settings)
    spec = spec_of(request.architecture.model, request.architecture.towers, overrides.architecture)
    assert isinstance(spec, ModelSpec), "graph models are rejected when the request is checked"
    profiles = profile_machine()
    run_id = start_run(f"{spec.family} on {dataset.name}", "plan", flow_run_id=flow_run.get_id())
    with closing(run_id):
        report = search_for_plan(dataset, spec, request, profiles)
        files = write_plan(report, _plan_path(out, run_id))
        run = open_run(run_id)
        params: dict[str, str | int] = {
            "model": report.plan.model,
            "data": report.plan.data,
            "fingerprint": report.plan.fingerprint,
            "devices": len(report.plan.devices),
            "batch_size": report.plan.batch_size,
            "space": request.space,
        }
        run.log_params({f"plan.{name}": value for name, value in params.items()})
        run.log_metrics({f"plan.{name}": value for name, value in _metrics(report).items()})
        log_files(run_id, files)
    _show(report, run_id, files)
    return report.model_copy(update={"run_id": run_id})


def _show(report: PlanReport, run_id: str, files: list[Path]) -> None:
    """Show the plan in Prefect."""
    plan = report.plan
    sentence = (
        f"Plan of {plan.model} on {plan.data} for {len(plan.devices)} devices: {1e3 * report.step_seconds:.3g} ms a "
        f"step of {plan.batch_size:,} samples (simulated; at least {1e3 * report.bound_seconds:.3g} ms)."
    )
    rows = [
        {
            "table": one.name,
            "rows": f"{one.rows:,}",
            "width": str(one.width),
            "placement": one.placement,
            "why": one.why,
        }
        for one in report.tables
    ]
    named: dict[str, str] = dict(
        zip(("Plan file", "Picture of the step", "Trace of the step"), (path.name for path in files), strict=True)
    )
    show_result("plan", sentence, markdown_table(rows), run_id=run_id, files=named)


def _plan_path(out: str, run_id: str) -> Path:
    """Return the path of the plan file; runs of a Prefect deployment may write only below SHUNTER_HOME."""
    return Settings().home / "plans" / run_id / (Path(out).name or "plan.yaml") if is_foreign_request() else Path(out)


@task(name="search for a plan", cache_policy=NO_CACHE)
def search_for_plan(
    dataset: Dataset, spec: ModelSpec, request: PlanRequest, profiles: list[HardwareProfile]
) -> PlanReport:
    """Search the placements of all tables."""
    return find_plan(dataset, spec, request, profiles, read_executed(Settings().executed_plans))


def write_plan(report: PlanReport, out: Path) -> list[Path]:
    """Write plan, picture and trace.

    Raises:
        RequestError: A file cannot be written.
    """
    out = out.absolute()
    files = [out, out.with_suffix(".png"), out.with_suffix(".trace.json")]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(plan_text(report.plan), encoding="utf-8")
        draw_plan(report, files[1])
        files[2].write_text(chrome_trace(report), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"The plan cannot be written to {out} ({error.strerror}): name another file.") from error
    return files


def _metrics(report: PlanReport) -> dict[str, float]:
    return {
        "step_seconds": report.step_seconds,
        "bound_seconds": report.bound_seconds,
        "hours": report.totals.hours,
        **({} if report.totals.kwh is None else {"kwh": report.totals.kwh}),
        **({} if report.totals.cost is None else {"cost": report.totals.cost}),
        "simulations": float(report.simulations),
        "search_seconds": report.search_seconds,
        **{f"proposal.{one.name.replace(' ', '_').replace(',', '')}_speedup": one.speedup for one in report.proposals},
        **{
            f"rival.{name.replace(' ', '_').replace(',', '').replace(chr(39), '')}_seconds": value
            for name, value in report.rivals.items()
        },
    }


def draw_plan(report: PlanReport, path: Path) -> Path:
    """Draw the tasks of the step over milliseconds to a PNG file; those on the critical path have a dark edge."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    lines = list(dict.fromkeys(event.resource for event in report.events))[:MOST_LINES]
    figure = Figure(figsize=(11, 1.6 + 0.32 * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    shown: dict[str, None] = {}
    for event in report.events:
        if event.resource not in lines:
            continue
        phase = event.phase.removesuffix(" across")
        shown[phase] = None
        axes.barh(
            lines.index(event.resource),
            1e3 * event.seconds,
            left=1e3 * event.start_seconds,
            color=COLOURS.get(phase, "#999999"),
            edgecolor="black" if event.is_critical else "white",
            linewidth=0.9 if event.is_critical else 0.2,
        )
    axes.set_yticks(range(len(lines)), lines)
    axes.invert_yaxis()
    # Proposals would train more samples a second, but alter what the model learns.
    told = ", ".join(f"{one.name} {one.speedup:.2f} x" for one in report.proposals)
    label = f"\nsamples per second with options that change the model: {told}" if told else ""
    axes.set_xlabel(f"milliseconds (simulated){label}")
    axes.set_title(
        f"{report.plan.model} on {report.plan.data}: one step of {report.plan.batch_size:,} samples, "
        f"{1e3 * report.step_seconds:.3g} ms; dark edges: the critical path"
    )
    entries = [Patch(color=COLOURS.get(one, "#999999"), label=one) for one in shown]
    figure.legend(handles=entries, loc="outside right upper", frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    return path


def chrome_trace(report: PlanReport) -> str:
    """Return the trace: a line for each device and link, a complete event for each task, in microseconds."""
    resources = list(dict.fromkeys(event.resource for event in report.events))
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": name}}
        for number, name in enumerate(resources)
    ]
    events = [
        {
            "name": event.name,
            "cat": event.phase,
            "ph": "X",
            "pid": 0,
            "tid": resources.index(event.resource),
            "ts": event.start_seconds * MICROSECONDS,
            "dur": event.seconds * MICROSECONDS,
            "args": {"on the critical path": event.is_critical},
        }
        for event in report.events
    ]
    title = {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "simulated step"}}
    return json.dumps({"traceEvents": [title, *names, *events], "displayTimeUnit": "ms"})
