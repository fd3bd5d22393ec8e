"""Search for a plan: several initial plans, a Markov chain over placements, replicated rows, and lower bounds.

The chain is FlexFlow's (MLSys 2019, section 6): a placement is changed at random and kept with the probability min(1,
exp(beta (before - after))). The seconds of a step are shares of the initial step. Beta rises from 10 to 100, so that
the chain ends as a descent. There are three kinds of change. A table gets any placement. A table gets the placement of
another table of similar size (propagation). A table moves from the busiest device to another one of its host or of all
hosts (topology). A small model is solved by a dynamic program first
(`shunter.extensions.distributed.planning.dynamic_program`), which proves that no plan is faster. Otherwise an integer
program is solved for a part of the time (`shunter.extensions.distributed.planning.integer_program`). Its plan may be a
better start, and its bound limits the distance to the optimum. Finally single changes are made until none is better,
including replicated rows as in OPER (ATC 2024).

Dense layers are divided for given table placements, or in turn with a search of them.
"""

import itertools
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from shunter.errors import InfeasibleError
from shunter.extensions.distributed.planning.dense_split import SplitLayer, kinds_of
from shunter.extensions.distributed.planning.dynamic_program import best_by_states
from shunter.extensions.distributed.planning.integer_program import solve
from shunter.extensions.distributed.planning.options import (
    Space,
    all_row_wise,
    data_parallel,
    manual_plan,
    options_of,
    small_tables_copied,
    whole_tables,
)
from shunter.extensions.distributed.planning.step import SimulatedPlan, StepModel, step_of
from shunter.extensions.distributed.tables.sharding_types import Choice

LAYER_ROUNDS = 2  # over all layers, as one that is divided may make another worth dividing
BETA = (10.0, 100.0)
FIRST_STEPS = 50  # in which nothing better is no reason to stop
PATIENCE = 40  # changes for each table without a better plan, after which the chain begins anew from the best
PROPAGATE, RELIEVE = 0.2, 0.4
DESCENT_SHARE = 0.4  # of the search's time that is kept for single changes
MISSING_PENALTY = 10.0  # of a step that lacks as many bytes as a device has
ENOUGH_GAP = 0.005
EXHAUSTIVE = 20_000  # plans that are all simulated instead
PROGRAM_SHARE = 0.4  # of the search's time, for the integer program
STATES_SHARE = 0.3  # of it, for the dynamic program
MOST_COMBINED = 10**9  # plans beyond which that has too many states
MOST_OPTIONS, MOST_PROGRAMMED = 2_000, 16  # options of all tables, and devices, beyond which it is left out


@dataclass(frozen=True)
class Found:
    """Fastest plan of a search.

    Attributes:
        bound_seconds: Lower bound of the step time of all plans in the space.
        beginnings: Simulated step of each initial plan that fits, by its name.
        proof: Method that proves that no plan is faster; empty without a proof.
    """

    choices: tuple[Choice, ...]
    step_seconds: float
    bound_seconds: float
    beginnings: dict[str, float] = field(default_factory=dict)
    simulations: int = 0
    seconds: float = 0.0
    proof: str = ""

    @property
    def is_optimal(self) -> bool:
        """Return True if it is proven that no plan of the space is faster."""
        return bool(self.proof)


class Search:
    """Search over the placements of the tables of one model.

    Args:
        with_program: Whether small models are also solved as a dynamic or an integer program.
        options: Placements that each table may have; if omitted, all placements of the space.
    """

    def __init__(
        self,
        model: StepModel,
        space: Space = "exact",
        seed: int = 0,
        *,
        with_program: bool = True,
        options: Sequence[Sequence[Choice]] | None = None,
    ) -> None:
        self.model, self.space = model, space
        self._with_program = with_program and model.layout.count <= MOST_PROGRAMMED
        self.options = (
            [list(one) for one in options]
            if options
            else [options_of(table, model.machine, space) for table in model.costs.demand.tables]
        )
        self._chance = random.Random(seed)
        self._several_options = [place for place, options in enumerate(self.options) if len(options) > 1]
        self.simulations = 0

    def run(
        self,
        seconds: float,
        more: Mapping[str, Sequence[Choice]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Found:
        """Search for the fastest plan for at most a given time.

        Args:
            seconds: Time limit of the search; the initial plans are always compared.
            more: Further initial plans.
            clock: Clock of the search.

        Raises:
            InfeasibleError: The tables do not fit into memory; the message gives the least sufficient memory.
        """
        if self._least_bytes() > sum(device.memory_bytes for device in self.model.machine.devices):
            raise InfeasibleError(self._too_small())
        begun = clock()
        combinations = math.prod(len(options) for options in self.options)
        costs, machine = self.model.costs, self.model.machine
        beginnings = self._simulated(
            {
                "data parallel": data_parallel(costs.demand),
                "by hand": manual_plan(costs.demand, machine),
                "whole tables, balanced": whole_tables(costs),
                "all by row": all_row_wise(costs.demand, machine),
                **(more or {}),
            }
        )
        mixtures = small_tables_copied(costs) if len(machine.devices) > 1 else {}
        fitting = {name: cost for name, (cost, _, missing) in beginnings.items() if not missing}
        all_of_them = [*beginnings.values(), *self._simulated(mixtures).values()]
        best = list(min(all_of_them, key=lambda one: one[0])[1])
        plan = SimulatedPlan(self.model, best)
        bound, proof = self.bound_seconds, ""
        if combinations <= EXHAUSTIVE and seconds > 0:
            self._exhaust(plan)
            bound, proof = plan.step_seconds, "all plans were simulated"
        elif combinations <= MOST_COMBINED and seconds > 0 and self._with_program:
            of_states, proof = self._states(plan, clock, begun, STATES_SHARE * seconds)
            bound = max(bound, of_states)
        if not proof:
            bound = max(bound, self._program(plan, PROGRAM_SHARE * seconds))
            self._chain(plan, clock, begun + seconds * (1 - DESCENT_SHARE))
            self._descend(plan, clock, begun + seconds)
        if plan.missing_bytes():
            raise InfeasibleError(self._too_small())
        return Found(
            choices=tuple(plan.choices),
            step_seconds=plan.step_seconds,
            bound_seconds=min(bound, plan.step_seconds),
            beginnings=fitting,
            simulations=self.simulations,
            seconds=clock() - begun,
            proof=proof,
        )

    def improve(self, choices: Sequence[Choice], seconds: float) -> tuple[list[Choice], float] | None:
        """Return the plan after at most `seconds` of single changes, and its step; None if it does not fit."""
        plan = SimulatedPlan(self.model, choices)
        self._descend(plan, time.monotonic, time.monotonic() + seconds)
        return None if plan.missing_bytes() else (list(plan.choices), plan.step_seconds)

    @cached_property
    def bound_seconds(self) -> float:
        """A lower bound of the step time: that of the layers, plus the least work of evenly divided tables."""
        layout, costs = self.model.layout, self.model.costs
        in_seconds = 2 * len(layout.groups) * layout.count
        least = 0.0
        for table, options in enumerate(self.options):
            least += min(
                sum(amount for place, amount in costs.contribution(table, one) if place < in_seconds) for one in options
            )
        return max(self.model.dense) + least / layout.count

    def _simulated(self, plans: Mapping[str, Sequence[Choice] | None]) -> dict[str, tuple[float, list[Choice], int]]:
        """Return, by name, the cost (seconds with penalty), placements and missing bytes of each initial plan."""
        found = {}
        for name, choices in plans.items():
            if choices is not None:
                plan = SimulatedPlan(self.model, choices)
                self.simulations += 1
                found[name] = (self._cost(plan), list(choices), plan.missing_bytes())
        return found

    def _cost(self, plan: SimulatedPlan) -> float:
        """Return the seconds of the step, with a penalty for missing memory."""
        missing = plan.missing_bytes()
        if not missing:
            return plan.step_seconds
        room = min(device.memory_bytes for device in self.model.machine.devices)
        return plan.step_seconds * (2.0 + MISSING_PENALTY * missing / max(room, 1))

    def _states(
        self, plan: SimulatedPlan, clock: Callable[[], float], begun: float, most_seconds: float
    ) -> tuple[float, str]:
        """Change `plan` to the dynamic program's best one; return the lower bound in seconds and the proof as text.

        Return 0 and an empty text if the tables do not fit or the program was stopped.
        """
        self._descend(plan, clock, begun + most_seconds / 3)
        if plan.missing_bytes():
            return 0.0, ""
        states = best_by_states(self.model, self.options, plan.choices, until=begun + most_seconds, clock=clock)
        if states is None:
            return 0.0, ""
        self._go_to(plan, states.choices)
        return states.bound_seconds, "no plan is faster, as a dynamic program shows" if states.is_best else ""

    def _program(self, plan: SimulatedPlan, most_seconds: float) -> float:
        """Change `plan` to the integer program's one if faster; return the lower bound in seconds, 0 if not solved."""
        if not (self._with_program and most_seconds) or sum(map(len, self.options)) > MOST_OPTIONS:
            return 0.0
        programmed, bound = solve(self.model, self.options, most_seconds)
        if programmed is not None:
            before, choices = self._cost(plan), list(plan.choices)
            self._go_to(plan, programmed)
            self.simulations += 1
            if self._cost(plan) >= before:
                self._go_to(plan, choices)
        return bound

    def _chain(self, plan: SimulatedPlan, clock: Callable[[], float], until: float) -> None:
        if not self._several_options:
            return
        begun, first = clock(), self._cost(plan)
        current, best, best_choices = first, first, list(plan.choices)
        idle = 0
        while (now := clock()) < until:
            if best <= (1 + ENOUGH_GAP) * self.bound_seconds:
                break
            beta = BETA[0] * (BETA[1] / BETA[0]) ** ((now - begun) / (until - begun))
            table, choice = self._change(plan)
            before = plan.choices[table]
            if choice == before:
                continue
            plan.place({table: choice})
            self.simulations += 1
            cost = self._cost(plan)
            if cost <= current or self._chance.random() < math.exp(beta * (current - cost) / first):
                current = cost
            else:
                plan.place({table: before})
            if current < best:
                best, best_choices, idle = current, list(plan.choices), 0
            else:
                idle += 1
            if idle > max(FIRST_STEPS, PATIENCE * len(self._several_options)):
                self._go_to(plan, best_choices)
                current, idle = best, 0
        self._go_to(plan, best_choices)

    def _change(self, plan: SimulatedPlan) -> tuple[int, Choice]:
        draw = self._chance.random()
        table = self._chance.choice(self._several_options)
        options = self.options[table]
        if draw < PROPAGATE:
            sizes = self.model.costs.demand.tables
            near = min(
                self._chance.sample(self._several_options, min(4, len(self._several_options))),
                key=lambda one: abs(math.log(sizes[one].rows / sizes[table].rows)),
            )
            choice = plan.choices[near]
            return table, choice if choice in options else self._chance.choice(options)
        if draw < PROPAGATE + RELIEVE:
            return self._relieved(plan)
        return table, self._chance.choice(options)

    def _relieved(self, plan: SimulatedPlan) -> tuple[int, Choice]:
        """Return a table to move off the busiest device and its new placement, on the same host if that has others."""
        layout, sums = self.model.layout, plan.sums
        groups = range(len(layout.groups))
        busy = [
            sum(sums[layout.of_device(name, group, one)] for name in ("lookup", "update") for group in groups)
            for one in range(layout.count)
        ]
        device = max(range(layout.count), key=busy.__getitem__)
        there = [one for one in self._several_options if plan.choices[one].devices == (device,)]
        table = self._chance.choice(there or self._several_options)
        host = device // layout.per_host
        near = [
            one
            for one in self.options[table]
            if one.kind != "table_wise" or (one.devices[0] // layout.per_host == host and one.devices[0] != device)
        ]
        return table, self._chance.choice(near or self.options[table])

    def _descend(self, plan: SimulatedPlan, clock: Callable[[], float], until: float) -> None:
        """Apply the best single change of each table in turn, until no change is better."""
        costs, tables = self.model.costs, list(self._several_options)
        current = self._cost(plan)
        tables.sort(key=lambda one: -costs.demand.tables[one].rows * costs.demand.tables[one].width)
        improved = True
        while improved and clock() < until:
            improved = False
            for table in tables:
                if clock() >= until:
                    break
                before = plan.choices[table]
                best, best_choice = current, before
                for choice in self.options[table]:
                    if choice == plan.choices[table]:
                        continue
                    plan.place({table: choice})
                    self.simulations += 1
                    cost = self._cost(plan)
                    if cost < best:
                        best, best_choice = cost, choice
                if plan.choices[table] != best_choice:
                    plan.place({table: best_choice})
                if best_choice != before:
                    current, improved = best, True

    def _exhaust(self, plan: SimulatedPlan) -> None:
        """Simulate all plans."""
        best, best_choices = self._cost(plan), list(plan.choices)
        for choices in itertools.product(*self.options):
            self._go_to(plan, choices)
            self.simulations += 1
            if (cost := self._cost(plan)) < best:
                best, best_choices = cost, list(choices)
        self._go_to(plan, best_choices)

    def _go_to(self, plan: SimulatedPlan, choices: Sequence[Choice]) -> None:
        edits = {table: one for table, one in enumerate(choices) if plan.choices[table] != one}
        if edits:
            plan.place(edits)

    def _least_bytes(self) -> int:
        """Return the least memory of all devices together: every table once, and the layers on each device."""
        demand, layout = self.model.costs.demand, self.model.layout
        tables = sum(table.rows * (table.width + 1) * 4 for table in demand.tables)
        held = self.model.memory_bytes([0.0] * layout.size)
        return tables + sum(held)

    def _too_small(self) -> str:
        devices = self.model.machine.devices
        count = len(devices)
        least, has = self._least_bytes() / count, min(device.memory_bytes for device in devices)
        largest = max(self.model.costs.demand.tables, key=lambda table: table.rows * table.width)
        return (
            f"The tables do not fit into memory: {count} devices have {has / 2**30:.3g} GiB each, but at least "
            f"{least / 2**30:.3g} GiB on each are needed, evenly divided (the largest table is {largest.name!r} with "
            f"{largest.rows:,} rows of {largest.width} numbers): use more memory or more devices."
        )


def split_layers(model: StepModel, choices: Sequence[Choice]) -> tuple[SplitLayer, ...]:
    """Return the layers whose division makes the step faster, each with its best division, the largest layer first.

    Fitting into memory has priority over time.
    """
    sums, layout = model.costs.sums(list(choices)), model.layout
    room = [device.memory_bytes for device in model.machine.devices]

    def cost(splits: Mapping[str, SplitLayer]) -> tuple[float, float]:
        tried = model.with_layers(tuple(splits.values()))
        used = tried.memory_bytes(sums)
        missing = sum(max(0, own - has) for own, has in zip(used, room, strict=True))
        return missing, step_of(tried, choices)[0]

    found: dict[str, SplitLayer] = {}
    best = cost(found)
    for _ in range(LAYER_ROUNDS):
        before = best
        for layer in sorted(model.costs.demand.layers, key=lambda one: (-one.parameter_bytes, one.name)):
            without = {name: one for name, one in found.items() if name != layer.name}
            ways = [without]
            for kind in kinds_of(layer, layout.per_host, layout.hosts):
                ways.append({**without, layer.name: SplitLayer(layer, kind)})
            for way in ways:
                if (tried := cost(way)) < best:
                    best, found = tried, way
        if best == before:
            break
    return tuple(found.values())


def search_with_layers(
    model: StepModel, seconds: float, begin: Mapping[str, Sequence[Choice]], seed: int
) -> tuple[StepModel, Found]:
    """Search tables and layers in turn: layers for manually placed tables, tables for these layers, then layers again.

    The result is the model with the layers that were found, and the plan of its tables. Other plans keep a copy of
    every layer on each device; the bound holds for all divisions of layers.
    """
    costs = model.costs
    first = model.with_layers(split_layers(model, manual_plan(costs.demand, model.machine)))
    search = Search(first, "all", seed)
    found = search.run(seconds, begin)
    last = model.with_layers(split_layers(model, found.choices))
    step_seconds = step_of(last, found.choices)[0]
    try:
        rivals = Search(model, "all", seed).run(0.0, begin).beginnings
    except InfeasibleError:
        rivals = {}
    bound = min(search.bound_seconds, step_seconds)
    return last, replace(found, step_seconds=step_seconds, bound_seconds=bound, beginnings=rivals, proof="")
