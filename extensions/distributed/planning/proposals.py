"""Proposals that make training faster than the best plan but change the result of training.

    messages in fp16    half the bytes of rows and gradients; the time of the conversion is not counted
    a larger batch      for each device: more samples share the constant time of a step
    towers              one on each host (`shunter.extensions.distributed.planning.tower_step`), in place of a dlrm
    or dcnv2 without towers

All proposals change the trained model by an unknown amount. They are therefore reported beside every plan, and used
only if the request allows them.
"""

from collections.abc import Sequence

from shunter.engine.data.dataset import Dataset
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.planning.calibration import ExecutedPlan
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import ModelDemand, demand_of
from shunter.extensions.distributed.planning.dense_split import SplitLayer
from shunter.extensions.distributed.planning.machine import Machine, machine_of
from shunter.extensions.distributed.planning.report import PlanReport, Proposal, search_plan, step_model, tower_report
from shunter.extensions.distributed.planning.search import Found
from shunter.extensions.distributed.planning.step import step_of
from shunter.extensions.distributed.planning.totals import check_limits
from shunter.extensions.distributed.planning.tower_step import TowerStep, search_towers, tower_demand, tower_workload
from shunter.hardware.types import HardwareProfile, Workload
from shunter.models.spec import ModelSpec

GIB = 2**30
BATCHES = (2, 4, 8)  # multiples of the batch that are reported if none is allowed
LEAST_GAIN = 0.01  # in samples a second, below which nothing is proposed
COMPRESSION = 4.0  # of towers
TOWER_SECONDS = 2.0  # longest search for the places of their tables
NOT_MEASURED = "the effect on quality is not measured"
UNLIMITED = {"max_hours": None, "max_kwh": None, "max_cost": None}


def find_plan(
    dataset: Dataset,
    spec: ModelSpec,
    request: PlanRequest,
    profiles: Sequence[HardwareProfile],
    executed: Sequence[ExecutedPlan] = (),
) -> PlanReport:
    """Find the plan for a request; executed plans may be of this machine or of others.

    Raises:
        RequestError: The model, an accelerator or the machine file cannot be used, or there are more devices than rows.
        InfeasibleError: The tables do not fit into memory, or the best plan breaks a limit.
    """
    memory = None if request.max_device_gib is None else int(request.max_device_gib * GIB)
    machine = machine_of(request.place, profiles).with_memory(memory)
    towers = tower_workload(dataset, spec, machine.hosts, COMPRESSION)
    return explored_plan(demand_of(dataset, spec), machine, request, executed, towers)


def explored_plan(
    demand: ModelDemand,
    machine: Machine,
    request: PlanRequest,
    executed: Sequence[ExecutedPlan] = (),
    towers: Workload | None = None,
) -> PlanReport:
    """Return the best plan that the request allows, with further proposals that it does not allow.

    `towers` is the work of a sample in the layers of the same model with a tower on each host; None if there is none.
    """
    takes_any = request.communication == "any"
    given = request.model_copy(update={**UNLIMITED, **({"communication": "fp32"} if takes_any else {})})
    report = search_plan(demand, machine, given, executed)
    proposals = _proposals(demand, machine, given, executed, report, most_batch=request.most_batch_size)
    changed, taken = given, []
    half = next((one for one in proposals if one.communication != given.communication), None)
    if takes_any and half is not None:
        changed, taken = changed.model_copy(update={"communication": half.communication}), [half]
    if request.most_batch_size is not None:
        larger = [one for one in proposals if given.batch_size < one.batch_size <= request.most_batch_size]
        if larger:
            best = max(larger, key=lambda one: one.speedup)
            changed, taken = changed.model_copy(update={"batch_size": best.batch_size}), [*taken, best]
    if taken:
        other = search_plan(demand, machine, changed, executed)
        if _rate(other) > _rate(report):
            report, given = _with_proposals(other, taken), changed
            proposals = _proposals(demand, machine, given, executed, report, most_batch=request.most_batch_size)
    if towers is not None and machine.hosts > 1:
        other = _with_towers(demand, machine, given, towers, report)
        if other is not None:
            gain = Proposal(
                name=f"{machine.hosts} towers, compressing {COMPRESSION:g} times",
                option="--allow-towers",
                step_seconds=other.step_seconds,
                speedup=_rate(other) / _rate(report),
                batch_size=given.batch_size,
                communication=given.communication,
                quality=f"another model, and {NOT_MEASURED}: train both",
            )
            if request.allow_towers and gain.speedup > 1:
                report, proposals = _with_proposals(other, [gain]), ()
            else:
                proposals = (*proposals, gain)
    check_limits(report.totals, request)
    return report.model_copy(update={"proposals": tuple(sorted(proposals, key=lambda one: -one.speedup))})


def _rate(report: PlanReport) -> float:
    return report.plan.batch_size / report.step_seconds


def _with_proposals(report: PlanReport, taken: Sequence[Proposal]) -> PlanReport:
    """Return the report, with the applied proposals added to the sources of its figures."""
    told = [f"Taken: {one.name} ({one.quality})." for one in taken]
    return report.model_copy(update={"told": " ".join([report.told, *told])})


def _proposals(
    demand: ModelDemand,
    machine: Machine,
    request: PlanRequest,
    executed: Sequence[ExecutedPlan],
    report: PlanReport,
    *,
    most_batch: int | None,
) -> tuple[Proposal, ...]:
    """Return proposals of other precisions and batch sizes that speed up the plan of `report` without a new search."""
    plan = report.plan
    choices = plan.choices(table.name for table in demand.tables)
    layers = {one.name: one for one in demand.layers}
    splits = [SplitLayer(layers[name], kind) for name, kind in plan.layers.items() if kind != "data_parallel"]

    def simulated(asked: PlanRequest) -> float | None:
        model = step_model(demand, machine, asked, executed).with_layers(splits)
        used = model.memory_bytes(model.costs.sums(choices))
        fits = all(own <= one.memory_bytes for own, one in zip(used, machine.devices, strict=True))
        return step_of(model, choices)[0] if fits else None

    found: list[Proposal] = []
    here = simulated(request)  # in equal parts of the batch, as the proposals

    def consider(name: str, option: str, quality: str, **changes: object) -> None:
        asked = request.model_copy(update=changes)
        seconds = simulated(asked)
        if seconds is None or here is None:
            return
        speedup = asked.batch_size / request.batch_size * here / seconds
        if speedup > 1 + LEAST_GAIN:
            found.append(
                Proposal(
                    name=name,
                    option=option,
                    step_seconds=seconds,
                    speedup=speedup,
                    batch_size=asked.batch_size,
                    communication=asked.communication,
                    quality=f"{quality}; {NOT_MEASURED}",
                )
            )

    if request.communication == "fp32" and len(machine.devices) > 1:
        quality = "rounds sent rows; the time of rounding is not counted"
        consider("messages in fp16", "--communication any", quality, communication="fp16")
    most = demand.workload.train_samples if most_batch is None else most_batch
    for times in BATCHES if most_batch is None else [2**power for power in range(1, 24)]:
        if (batch := times * request.batch_size) <= most:
            quality = f"{times} times fewer updates"
            consider(f"batches of {batch:,}", f"--most-batch-size {batch}", quality, batch_size=batch)
    return tuple(found)


def _with_towers(
    demand: ModelDemand, machine: Machine, request: PlanRequest, towers: Workload, flat: PlanReport
) -> PlanReport | None:
    """Search a plan for the same tables in a model with a tower on each host; None if the tables do not fit."""
    other = tower_demand(demand, towers)
    if len(other.tables) < machine.hosts:
        return None
    calibration = step_model(demand, machine, request).calibration  # plans are executed on one host alone
    model = TowerStep(TableCosts(machine, other, request.batch_size, request.precision), COMPRESSION, calibration)
    found = search_towers(model, min(TOWER_SECONDS, request.search_seconds))
    if found is None:
        return None
    choices, seconds = found
    rivals = {**flat.rivals, "without towers": flat.step_seconds}
    return tower_report(model, request, Found(tuple(choices), seconds, 0.0, rivals))
