"""Automatic plan of a training job in several processes, and the predicted step of a given plan."""

from collections.abc import Sequence

from shunter.engine.data.dataset import Dataset
from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.planning.calibration import ExecutedPlan, SimulatedStep
from shunter.extensions.distributed.planning.costs import choices_of
from shunter.extensions.distributed.planning.demand import ModelDemand, demand_of
from shunter.extensions.distributed.planning.machine import (
    Machine,
    OnNodes,
    executed_on,
    processes_here,
    processes_on_nodes,
)
from shunter.extensions.distributed.planning.plan import Plan
from shunter.extensions.distributed.planning.report import PlanReport, search_plan, simulated_step, step_model
from shunter.hardware.types import HardwareProfile, Placement
from shunter.models.spec import ModelSpec

SEARCH_SECONDS = 2.0


def plan_training(
    dataset: Dataset,
    spec: ModelSpec,
    placement: Placement,
    profiles: Sequence[HardwareProfile],
    executed: Sequence[ExecutedPlan],
    *,
    nodes: OnNodes | None = None,
) -> PlanReport | None:
    """Search the plan of a training run in several processes.

    TorchRec's plan is used unless the found plan is faster by more than the error of two predictions. None if there are
    more processes than rows, or if no plan fits into memory by our count. TorchRec's planner in the processes then
    decides.

    Args:
        dataset: The data.
        spec: The model.
        placement: Placement of the training run.
        profiles: Profiles of this machine, or of the nodes of a cluster.
        executed: Plans that past training runs executed.
        nodes: Nodes of the processes on a cluster; None on this machine.
    """
    machine = _machine(placement, profiles, nodes)
    request = PlanRequest(batch_size=placement.batch_size, search_seconds=SEARCH_SECONDS)
    try:
        return search_plan(demand_of(dataset, spec), machine, request, executed, is_cautious=True)
    except (RequestError, InfeasibleError):
        return None


def step_of_plan(
    demand: ModelDemand,
    plan: Plan,
    placement: Placement,
    profiles: Sequence[HardwareProfile],
    executed: Sequence[ExecutedPlan],
    *,
    nodes: OnNodes | None = None,
) -> SimulatedStep:
    """Return the predicted step of a given plan at the batch size of the training; see `plan_training`."""
    machine = _machine(placement, profiles, nodes)
    request = PlanRequest(batch_size=placement.batch_size, communication=plan.precision)
    return simulated_step(step_model(demand, machine, request, executed), choices_of(plan, demand))


def _machine(placement: Placement, profiles: Sequence[HardwareProfile], nodes: OnNodes | None) -> Machine:
    """The processes of a placement: of the processor, or on a GPU each."""
    if nodes is not None:
        profile = next(one for one in profiles if one.accelerator.name == placement.accelerator)
        return processes_on_nodes(profile, placement.processes, nodes.threads(placement), nodes)
    kind = "cpu" if placement.device == "cpu" else "cuda"
    own = [one for one in profiles if one.accelerator.kind == kind]
    return processes_here(own or profiles, placement.processes)


def trains_as_simulated(
    placement: Placement, profiles: Sequence[HardwareProfile], step: SimulatedStep, nodes: OnNodes | None = None
) -> bool:
    """Return True if processes had the simulated number of threads; only such steps calibrate."""
    profile = next((one for one in profiles if one.accelerator.name == placement.accelerator), None)
    if profile is None:
        return False
    if nodes is not None:
        return step.machine == nodes.key(profile, placement.processes, nodes.threads(placement))
    threads = max(1, placement.threads // placement.processes)
    return placement.node is None and step.machine == executed_on(profile, placement.processes, threads)
