"""Plan that places the embedding tables of a training run: given by the user and checked, or found by search."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.engine.executors.role import ComputeTarget
from shunter.engine.executors.this_machine import ThisMachine
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.overrides import read_overrides
from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.distributed.executors.process_group import group_of_processes
from shunter.extensions.distributed.executors.ray.cluster import Cluster
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.plan_section import TRAINED_PLAN
from shunter.extensions.distributed.planning.calibration import (
    ExecutedPlan,
    SimulatedStep,
    add_executed,
    read_executed,
    typical_step_seconds,
)
from shunter.extensions.distributed.planning.demand import demand_of, table_names
from shunter.extensions.distributed.planning.machine import (
    Machine,
    OnNodes,
    executed_on,
    local_processes,
    processes_on_nodes,
)
from shunter.extensions.distributed.planning.plan import Plan, check_fits, plan_text, read_plan, tables_fingerprint
from shunter.extensions.distributed.planning.report import PlanReport, search_plan, simulated_step, step_model
from shunter.extensions.distributed.training import Division
from shunter.hardware.types import HardwareProfile, Placement
from shunter.models.spec import ModelSpec
from shunter.planner.describe import spec_of
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tasks.run_context import RunContext
from shunter.tracking.reports import log_files, log_text
from shunter.tracking.runs import open_run

SEARCH_SECONDS = 2.0


@dataclass(frozen=True)
class PlannedTraining:
    """Training on a target that divides the embedding tables by a plan, and the plan's predicted step."""

    place: ComputeTarget
    step: SimulatedStep


class TablePlanner:
    """Planner of training runs in several processes; a `shunter.tasks.training_plans.Planner`."""

    def processes(self, path: Path) -> int:
        """Return the number of devices of the plan in a file."""
        return len(read_plan(path).devices)

    def check(self, run: RunContext, path: Path) -> None:
        """Raise if a plan does not fit the model, before anything is trained.

        Raises:
            RequestError: The plan is for another model or other tables, can only be simulated, or divides columns
                although the width of the rows is still searched.
        """
        plan = read_plan(path)
        if plan.model != run.request.model:
            raise RequestError(
                f"The plan {path} was made for --model {plan.model}, not for {run.request.model}: make one "
                "for this model with `shunter plan`."
            )
        if plan.only_simulated is not None:
            raise RequestError(f"The plan {path} {plan.only_simulated}.")
        if plan.divided_width not in (None, _fixed_width(run.request)):
            raise RequestError(
                f"The plan {path} divides the columns of tables, so the embedding width must not be "
                f"searched: add --set embedding_dim={plan.divided_width}."
            )
        features = run.dataset.features
        names = table_names(run.dataset)
        shapes = [
            (name, rows, plan.tables[name].width if name in plan.tables else 1)
            for name, rows in zip(names, features.table_rows, strict=True)
        ]
        check_fits(plan, shapes, str(path))

    def training(self, run: RunContext, job: ClickJob, placement: Placement) -> PlannedTraining | None:
        """Return how a run in several processes divides its tables: by the given plan, or by the best one found.

        The plan is stored in the folder of the run, so that a resumed training run uses the same plan. None is returned
        if one process trains, if the tables are in files, or if no plan is found; TorchRec's planner then decides.

        Raises:
            RequestError: The given plan divides columns of another width.
        """
        if run.processes == 1 or placement.embedding_memory_bytes is not None:
            return None  # tables in files are divided by row
        assert isinstance(job, TrainingJob), "graph models train in one process"
        path = run.request.training.plan
        found = _given(run, job, Path(path), placement) if path is not None else _searched(run, job, placement)
        if found is None:
            return None
        plan, step = found
        division = Division(tables=tuple(plan.choices(table_names(run.dataset))), precision=plan.precision)
        if run.cluster is None:
            return PlannedTraining(ThisMachine(partial(group_of_processes, division=division)), step)
        return PlannedTraining(cast(Cluster, run.cluster).divided(division), step)

    def keep_step(self, run: RunContext, planned: PlannedTraining, trained: Any) -> None:
        """Store the measured time of a plan's steps beside the predicted time, in the run and for later plans.

        Compiled steps are not used for later plans, because predictions are for uncompiled steps.
        """
        seconds = typical_step_seconds(trained.history)
        if seconds is None or trained.run_id is None:
            return
        log_executed(trained.run_id, planned.step.predicted_seconds, seconds)
        if trained.compile_seconds:
            return
        if trains_as_simulated(trained.placement, run.profiles, planned.step, _nodes(run, trained.placement)):
            plan = ExecutedPlan(key=trained.run_id, measured_seconds=seconds, step=planned.step)
            add_executed(Settings().executed_plans, plan)


def _fixed_width(request: TrainRequest) -> int | None:
    """Return the width of an embedding row; None if the width is searched."""
    fixed = read_overrides(request.model, request.architecture.settings).architecture
    if "embedding_dim" not in fixed and request.search.most_trials != 1:
        return None
    spec = spec_of(request.model, request.architecture.towers, fixed)
    assert isinstance(spec, ModelSpec), "graph models have no plan"
    return spec.embedding_dim


def _given(run: RunContext, job: ClickJob, path: Path, placement: Placement) -> tuple[Plan, SimulatedStep]:
    plan = read_plan(path)
    names, shapes = table_names(run.dataset), job.spec.tables(job.dataset.features)
    check_fits(
        plan, [(name, s.rows, s.width) for name, s in zip(names, shapes, strict=True)], str(path), any_width=True
    )
    kept = _plan_path(run, job, placement)
    if not (step := _read_step(kept)):
        machine = _machine(placement, run.profiles, _nodes(run, placement))
        asked = PlanRequest(batch_size=placement.batch_size, communication=plan.precision)
        demand = demand_of(run.dataset, job.spec)
        model = step_model(demand, machine, asked, read_executed(Settings().executed_plans))
        step = simulated_step(model, plan.choices(names))
        _keep(run, kept, plan, step)
    return plan, step


def _searched(run: RunContext, job: ClickJob, placement: Placement) -> tuple[Plan, SimulatedStep] | None:
    """Return the best plan, or TorchRec's unless the best is faster by more than the error of two predictions.

    None if there are more processes than rows, or if no plan fits into memory by Shunter's estimate.
    """
    kept = _plan_path(run, job, placement)
    if step := _read_step(kept):
        return read_plan(kept), step
    executed = read_executed(Settings().executed_plans)
    machine = _machine(placement, run.profiles, _nodes(run, placement))
    asked = PlanRequest(batch_size=placement.batch_size, search_seconds=SEARCH_SECONDS)
    try:
        found = search_plan(demand_of(run.dataset, job.spec), machine, asked, executed, is_cautious=True)
    except (RequestError, InfeasibleError):
        return None
    _keep(run, kept, found.plan, found.step, found)
    return found.plan, found.step


def _nodes(run: RunContext, placement: Placement) -> OnNodes | None:
    """Return the cluster nodes of the processes; None on this machine."""
    if run.cluster is None:
        return None
    slots = cast(Cluster, run.cluster).slots(placement)
    return OnNodes(tuple(sorted({slot.node.host for slot in slots})), max(slot.shared_by for slot in slots))


def _machine(placement: Placement, profiles: Sequence[HardwareProfile], nodes: OnNodes | None) -> Machine:
    """Return the processes of a placement as a machine: they share the processor, or have a GPU each."""
    if nodes is not None:
        profile = next(one for one in profiles if one.accelerator.name == placement.accelerator)
        return processes_on_nodes(profile, placement.processes, nodes.threads(placement), nodes)
    kind = "cpu" if placement.device == "cpu" else "cuda"
    own = [one for one in profiles if one.accelerator.kind == kind]
    return local_processes(own or profiles, placement.processes)


def trains_as_simulated(
    placement: Placement, profiles: Sequence[HardwareProfile], step: SimulatedStep, nodes: OnNodes | None = None
) -> bool:
    """Return True if processes had the simulated number of threads; only then the step calibrates predictions."""
    profile = next((one for one in profiles if one.accelerator.name == placement.accelerator), None)
    if profile is None:
        return False
    if nodes is not None:
        return step.machine == nodes.key(profile, placement.processes, nodes.threads(placement))
    threads = max(1, placement.threads // placement.processes)
    return placement.node is None and step.machine == executed_on(profile, placement.processes, threads)


def _plan_path(run: RunContext, job: ClickJob, placement: Placement) -> Path:
    """Return the path of a training run's plan; training runs with equal tables and batches share one plan."""
    names, shapes = table_names(run.dataset), job.spec.tables(run.dataset.features)
    fingerprint = tables_fingerprint([(name, s.rows, s.width) for name, s in zip(names, shapes, strict=True)])
    name = f"{job.spec.family}-{fingerprint}-{placement.processes}x{placement.batch_size}.yaml"
    return run.directory / "plans" / name


def _read_step(kept: Path) -> SimulatedStep | None:
    """Return the predicted step of a stored plan; None if there is none. The step is written after the plan."""

    def parse(text: bytes) -> SimulatedStep | None:
        values = json_object(text)
        if "plan" in values and values["plan"] != zlib.crc32(kept.read_bytes()):
            raise ValueError(f"{kept.name} is another plan")
        return SimulatedStep.model_validate(values.get("step", values))

    return read_or_quarantine(kept.with_suffix(".json"), parse)


def _keep(run: RunContext, kept: Path, plan: Plan, step: SimulatedStep, report: PlanReport | None = None) -> None:
    """Store a plan and its predicted step beside the run, and log them with details for the report page."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(plan_text(plan), encoding="utf-8")
    values = {"plan": zlib.crc32(kept.read_bytes()), "step": step.model_dump(mode="json")}
    write_checked(kept.with_suffix(".json"), json.dumps(values))
    why = {} if report is None else {one.name: one.why for one in report.tables}
    details: dict[str, Any] = {
        "is_given": report is None,
        "devices": len(plan.devices),
        "step_seconds": step.predicted_seconds,
        "rivals": {} if report is None else report.rivals,
        "told": "" if report is None else report.told,
        "tables": [
            {"name": name, "rows": one.rows, "width": one.width, "placement": one.label, "why": why.get(name, "")}
            for name, one in plan.tables.items()
        ],
    }
    log_trained_plan(run.run_id, kept, details)


def log_trained_plan(run_id: str, path: Path, details: dict[str, Any]) -> None:
    """Write the plan that the training jobs of a run follow: the file in `plans/`, and details for the report page."""
    log_files(run_id, [path], "plans")
    log_text(run_id, TRAINED_PLAN, json.dumps(details))


def log_executed(run_id: str, predicted_seconds: float, measured_seconds: float) -> None:
    """Write the predicted and the measured step time of a plan in a training run, in seconds."""
    open_run(run_id).log_metrics(
        {"plan.predicted_step_seconds": predicted_seconds, "plan.measured_step_seconds": measured_seconds}
    )
