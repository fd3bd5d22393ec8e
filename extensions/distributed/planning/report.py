"""Report of a search for a plan, with reasons: for the terminal, MLflow and the files beside the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from shunter.errors import RequestError
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.planning.calibration import (
    OF_PROCESSORS,
    UNCALIBRATED,
    UNTAUGHT,
    ExecutedPlan,
    SimulatedStep,
    calibrate,
)
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import ModelDemand
from shunter.extensions.distributed.planning.dense_split import SplitLayer
from shunter.extensions.distributed.planning.device_costs import samples_by_rate
from shunter.extensions.distributed.planning.machine import Machine
from shunter.extensions.distributed.planning.options import Space, options_of
from shunter.extensions.distributed.planning.plan import Plan, TablePlacement
from shunter.extensions.distributed.planning.search import Found, Search, search_with_layers
from shunter.extensions.distributed.planning.simulate import critical_path, simulate
from shunter.extensions.distributed.planning.step import SimulatedPlan, StepModel, step_of
from shunter.extensions.distributed.planning.torchrec_plan import torchrec_choices
from shunter.extensions.distributed.planning.totals import PlanTotals, check_limits, totals_of
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.frozen import Frozen

TORCHREC = "TorchRec's planner"


class TableReport(Frozen):
    """Placement of one table, named by its field, with the reason.

    Attributes:
        width: Number of floats in a row.
        why: Step time if the table had another placement, as text.
    """

    name: str
    rows: int
    width: int
    placement: str
    why: str


class Event(Frozen):
    """Task of the simulated step."""

    name: str
    phase: str
    resource: str
    start_seconds: float
    seconds: float
    is_critical: bool


class Proposal(Frozen):
    """Proposal that makes training faster but changes the trained model.

    Attributes:
        option: Option that allows the change.
        speedup: Ratio of samples per second with and without the proposal.
        communication: Precision of messages.
        quality: Change of the trained model, and its known effect on quality.
    """

    name: str
    option: str
    step_seconds: float
    speedup: float
    batch_size: int
    communication: str
    quality: str


class PlanReport(Frozen):
    """Plan with its simulated step.

    Attributes:
        bound_seconds: Lower bound of the step time of all plans in the search space.
        rivals: Simulated step time of the plans that the search began from, by name.
        not_fitting: Names of the initial plans that do not fit into memory.
        busy_seconds: Time that each device and link is busy in a step.
        critical_path: Tasks that determine the step time, in order, with their seconds.
        memory_bytes: Memory that each device needs.
        told: Source of the figures.
        is_optimal: Whether it is proven, by the method `proof`, that no plan in the search space is faster.
        run_id: MLflow run of the search; None if the plan was not requested by the flow.
        step: Tasks of the step, from which the planner learns once the plan has been executed.
    """

    plan: Plan
    step_seconds: float
    bound_seconds: float
    rivals: dict[str, float]
    not_fitting: tuple[str, ...]
    tables: tuple[TableReport, ...]
    busy_seconds: dict[str, float]
    critical_path: tuple[tuple[str, float], ...]
    memory_bytes: tuple[int, ...]
    events: tuple[Event, ...]
    told: str
    simulations: int
    search_seconds: float
    is_optimal: bool
    proof: str
    totals: PlanTotals
    proposals: tuple[Proposal, ...] = ()
    run_id: str | None = None
    step: SimulatedStep = Field(exclude=True)


def search_plan(
    demand: ModelDemand,
    machine: Machine,
    request: PlanRequest,
    executed: Sequence[ExecutedPlan] = (),
    *,
    is_cautious: bool = False,
) -> PlanReport:
    """Find a plan for a given model on a machine; see `shunter.extensions.distributed.planning.proposals.find_plan`.

    TorchRec's plan is used unless the gain of the found plan exceeds twice the known prediction error.
    """
    check_devices(demand, machine)
    model = step_model(demand, machine, request, executed)
    space: Space = request.space
    rival = torchrec_choices(model.costs, space)
    begin = {} if rival is None else {TORCHREC: rival}
    samples = samples_by_rate(machine, demand, request.batch_size)
    seconds = request.search_seconds / (1 if samples is None else 2)
    model, found = _searched(model, space, request.seed, seconds, begin)
    told = ""
    if samples is not None:
        unequal = step_model(demand, machine, request, executed, samples)
        begin = {**begin, "found for equal parts": found.choices}
        unequal, other = _searched(unequal, space, request.seed, seconds, begin)
        change = other.step_seconds / found.step_seconds - 1
        taken = "are planned, but shunter train does not support them" if change < 0 else "are not worth it"
        told = f"Parts of the batch in proportion to the devices' rates {taken}: a step would take {change:+.1%}."
        if other.step_seconds < found.step_seconds:
            # Rivals stay as they can be trained, in equal parts.
            model, found = unequal, replace(other, beginnings={**found.beginnings, "equal parts": found.step_seconds})
    if is_cautious and rival is not None and TORCHREC in found.beginnings:
        found, told = choose_cautiously(found, rival, model.calibration.error)
    samples = samples if model.costs.samples == samples else None
    plan = plan_of(demand, machine, found.choices, request, model.layers, samples=samples or ())
    totals = totals_of(demand, machine, request, step_of(model, found.choices)[0])
    check_limits(totals, request)
    report = _report(model, found, plan, totals, space, has_rival=rival is not None)
    return report.model_copy(update={"told": f"{report.told} {told}".strip()})


def tower_report(model: StepModel, request: PlanRequest, found: Found) -> PlanReport:
    """Return the report of a plan for a model with a tower on each host."""
    demand, machine = model.costs.demand, model.machine
    plan = plan_of(demand, machine, found.choices, request).model_copy(update={"towers": machine.hosts})
    return _report(model, found, plan, totals_of(demand, machine, request, found.step_seconds), None, has_rival=False)


def _searched(
    model: StepModel, space: Space, seed: int, seconds: float, begin: Mapping[str, Sequence[Choice]]
) -> tuple[StepModel, Found]:
    """Search for a plan; return the simulator of its step (the space `all` divides dense layers, too) and the plan."""
    if space == "all":
        return search_with_layers(model, seconds, begin, seed)
    return model, Search(model, space, seed).run(seconds, begin)


def choose_cautiously(found: Found, rival: Sequence[Choice], error: float | None) -> tuple[Found, str]:
    """Return the plan to use (the found one, or TorchRec's if the predicted gain is within the error) and the reason.

    Both step times are predicted, so their difference may have twice the error of one prediction.
    """
    gain = 1 - found.step_seconds / found.beginnings[TORCHREC]
    if error is not None and gain > 2 * error:
        return found, ""
    known = (
        "before any plan was executed on this machine"
        if error is None
        else f"and the error of each prediction is {error:.0%}"
    )
    told = f"TorchRec's plan is used: the plan found is expected to be {gain:.1%} faster, {known}."
    kept = replace(found, choices=tuple(rival), step_seconds=found.beginnings[TORCHREC], proof="")
    return kept, told


def step_model(
    demand: ModelDemand,
    machine: Machine,
    request: PlanRequest,
    executed: Sequence[ExecutedPlan] = (),
    samples: Sequence[float] | None = None,
) -> StepModel:
    """Return the step simulator of a model on a machine, calibrated by the plans that were executed on it.

    Without `samples` of a step for each device, the devices get equal parts of the batch.
    """
    known = [one for one in executed if machine.key is not None and one.step.machine == machine.key]
    costs = TableCosts(machine, demand, request.batch_size, request.precision, samples)
    prior = OF_PROCESSORS if machine.computes_messages else UNCALIBRATED.factors
    known_as = _model_key(costs)
    calibration = calibrate(known, prior, known_as) if known or not machine.computes_messages else UNTAUGHT
    return StepModel(costs, overlap=request.overlap, calibration=calibration)


def simulated_step(model: StepModel, choices: Sequence[Choice]) -> SimulatedStep:
    """Return the tasks of a plan's step, from which the step time can be computed again with other factors."""
    amounts = model.amounts(model.costs.sums(list(choices)))
    seconds = [model.calibration.seconds(one) for one in amounts]
    step_seconds = simulate(model.graph, seconds).end[-1]
    return SimulatedStep(
        machine=model.machine.key,
        model=_model_key(model.costs),
        predicted_seconds=step_seconds,
        resources=len(model.graph.resources),
        resource=tuple(model.graph.resource),
        waits_for=tuple(model.graph.waits_for),
        amounts=tuple(amounts),
    )


def _model_key(costs: TableCosts) -> str:
    """Return the key of plans of one model: its family, its tables and the batch size."""
    return f"{costs.demand.family}, {costs.demand.fingerprint}, {costs.batch_size}"


def check_devices(demand: ModelDemand, machine: Machine) -> None:
    """Raise `RequestError` if there are more devices than rows of the largest table."""
    most, count = max((table.rows for table in demand.tables), default=0), len(machine.devices)
    if count > most:
        raise RequestError(
            f"{count} devices are more than the {most} rows of the largest table: use at most {most} devices."
        )


def plan_of(
    demand: ModelDemand,
    machine: Machine,
    choices: Sequence[Choice],
    request: PlanRequest,
    layers: Sequence[SplitLayer] = (),
    *,
    samples: Sequence[int] = (),
) -> Plan:
    """Return a `Plan` of these table placements and divided layers, for the request's batch size and precision."""
    return Plan(
        model=demand.family,
        data=demand.data,
        fingerprint=demand.fingerprint,
        batch_size=request.batch_size,
        devices=tuple(device.name for device in machine.devices),
        devices_per_host=machine.per_host,
        precision=request.precision,
        tables={
            table.name: TablePlacement(
                rows=table.rows,
                width=table.width,
                kind=choice.kind,
                devices=choice.devices,
                replicated_rows=choice.replicated_rows,
            )
            for table, choice in zip(demand.tables, choices, strict=True)
        },
        layers={one.layer.name: one.kind for one in layers},
        samples=tuple(samples),
    )


def _report(
    model: StepModel, found: Found, plan: Plan, totals: PlanTotals, space: Space | None, *, has_rival: bool
) -> PlanReport:
    simulated = SimulatedPlan(model, found.choices)
    graph, seconds = model.graph, model.seconds(simulated.sums)
    schedule = simulate(graph, seconds)
    path = critical_path(graph, seconds, schedule)
    critical = set(path)
    events = tuple(
        Event(
            name=task.name,
            phase=task.phase,
            resource=graph.resources[task.resource],
            start_seconds=schedule.start[number],
            seconds=seconds[number],
            is_critical=number in critical,
        )
        for number, task in enumerate(graph.tasks)
        if task.resource >= 0 and seconds[number]
    )
    busy: dict[str, float] = {}
    for event in events:
        busy[event.resource] = busy.get(event.resource, 0.0) + event.seconds
    lacking = ["data parallel", "by hand", "whole tables, balanced", "all by row", *([TORCHREC] if has_rival else [])]
    memory = model.memory_bytes(simulated.sums)
    return PlanReport(
        plan=plan,
        step_seconds=schedule.seconds,
        bound_seconds=found.bound_seconds,
        rivals=found.beginnings,
        not_fitting=tuple(name for name in lacking if name not in found.beginnings),
        critical_path=tuple((graph.tasks[one].name, seconds[one]) for one in path),
        memory_bytes=tuple(memory),
        busy_seconds=busy,
        events=events,
        told=f"{model.machine.told} {model.calibration.sentence}".strip(),
        simulations=found.simulations,
        search_seconds=found.seconds,
        is_optimal=found.is_optimal,
        proof=found.proof,
        tables=_tables(model, simulated, plan, space),
        totals=totals,
        step=simulated_step(model, found.choices),
    )


def _tables(model: StepModel, simulated: SimulatedPlan, plan: Plan, space: Space | None) -> tuple[TableReport, ...]:
    """Return the report of each table, with its best placement of each other kind if all other tables stay."""
    made, here = [], simulated.step_seconds
    for number, table in enumerate(model.costs.demand.tables):
        chosen = simulated.choices[number]
        best: dict[str, float] = {}
        full: set[str] = set()
        for choice in () if space is None else options_of(table, model.machine, space):
            if choice == chosen or (
                choice.kind == chosen.kind and bool(choice.replicated_rows) == bool(chosen.replicated_rows)
            ):
                continue
            kind = choice.kind.replace("_", "-") + (" with copies of frequent rows" if choice.replicated_rows else "")
            cost = simulated.place({number: choice})
            if simulated.missing_bytes():
                full.add(kind)
            else:
                best[kind] = min(cost, best.get(kind, cost))
        simulated.place({number: chosen})
        made.append(
            TableReport(
                name=table.name,
                rows=table.rows,
                width=table.width,
                placement=plan.tables[table.name].label,
                why=_why(here, best, full - best.keys()),
            )
        )
    return tuple(made)


def _why(here: float, others: dict[str, float], full: set[str]) -> str:
    """Return a text that compares a table's second-best placement, and names placements that do not fit."""
    parts = []
    if others:
        kind, cost = min(others.items(), key=lambda one: one[1])
        change = cost / here - 1
        parts.append(f"{kind} would be as fast" if abs(change) < 5e-4 else f"{kind} would take {change:+.1%}")
    if full:
        parts.append(f"{', '.join(sorted(full))} would not fit")
    return "; ".join(parts) or "there is no other placement"
