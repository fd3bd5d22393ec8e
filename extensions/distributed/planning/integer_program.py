"""Optimal plan by a mixed integer program, which also gives a lower bound on all plans.

    minimise  end of the step
    x[t, o]   whether table t has option o; exactly one option per table
    z[g]      whether group g has a table:            sum over o in g of x[t, o] <= z[g]
    d[j]      seconds of task j:                      d[j] >= start[j] z[g] + sum of x[t, o] * seconds of o
    e[j]      end of task j:                          e[j] >= e[i] + d[j]           for each i that it waits for
              one task at a time on a device or link: e[j] >= e[i] + sum of d[k]    over all k on it between i and j

The memory of each device is limited too. The program omits the first-ready order of the queues. Its optimum is
therefore a lower bound on the simulated step of every plan, and the simulated step of its plan is an upper bound. Alpa
(OSDI 2022, section 4) chooses the parallel form of each operator by such a program.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shunter.extensions.distributed.planning.dynamic_program import chains
from shunter.extensions.distributed.planning.simulate import TaskGraph
from shunter.extensions.distributed.planning.step import StepModel
from shunter.extensions.distributed.tables.sharding_types import Choice

SCALE = 1e3  # milliseconds, and gibibytes, so that the solver's tolerances mean something
GIB = 2.0**30
GAP = 1e-4  # between plan and bound, at which the solver stops


class _Rows:
    """Rows of a sparse matrix with their upper bounds: row @ variables <= bound."""

    def __init__(self) -> None:
        self.bounds: list[float] = []
        self._row: list[int] = []
        self._column: list[int] = []
        self._value: list[float] = []

    def add(self, terms: Iterable[tuple[int, float]], bound: float = 0.0) -> None:
        for column, value in terms:
            self._row.append(len(self.bounds))
            self._column.append(column)
            self._value.append(value)
        self.bounds.append(bound)

    def matrix(self, columns: int) -> Any:
        from scipy.sparse import coo_array

        return coo_array((self._value, (self._row, self._column)), shape=(len(self.bounds), columns)).tocsr()


class _Columns:
    """Index of each variable: options of all tables, groups, seconds and ends of all tasks."""

    def __init__(self, model: StepModel, options: Sequence[Sequence[Choice]]) -> None:
        pairs = [(table, option) for table, several in enumerate(options) for option in range(len(several))]
        self.option = {pair: place for place, pair in enumerate(pairs)}
        self.groups, self.tasks = len(model.layout.groups), len(model.graph.tasks)
        self.integers = len(pairs) + self.groups
        self.count = self.integers + 2 * self.tasks

    def group(self, group: int) -> int:
        return len(self.option) + group

    def seconds(self, task: int) -> int:
        return self.integers + task

    def end(self, task: int) -> int:
        return self.integers + self.tasks + task


def solve(
    model: StepModel, options: Sequence[Sequence[Choice]], most_seconds: float
) -> tuple[tuple[Choice, ...] | None, float]:
    """Return the fastest plan that the solver finds within `most_seconds` (or None), and the proven lower bound."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    columns, rows = _Columns(model, options), _Rows()
    added = _added(model, options, columns)
    _link_groups(model, options, columns, rows)
    _bound_seconds(model, columns, added, rows)
    _order_tasks(model.graph, columns, rows)
    _limit_memory(model, columns, added, rows)
    choose, integers = _Rows(), np.zeros(columns.count)
    for table, several in enumerate(options):
        choose.add((columns.option[table, option], 1.0) for option in range(len(several)))
    integers[: len(columns.option)] = 1  # groups follow from them
    upper = np.full(columns.count, np.inf)
    upper[: columns.integers] = 1.0
    goal = np.zeros(columns.count)
    goal[columns.end(len(model.graph.tasks) - 1)] = 1.0
    found = milp(
        goal,
        integrality=integers,
        bounds=Bounds(np.zeros(columns.count), upper),  # pyright: ignore[reportArgumentType]
        constraints=[
            LinearConstraint(choose.matrix(columns.count), 1.0, 1.0),
            LinearConstraint(rows.matrix(columns.count), -np.inf, np.array(rows.bounds)),  # pyright: ignore[reportArgumentType]
        ],
        options={"time_limit": most_seconds, "mip_rel_gap": GAP},
    )
    bound = 0.0 if found.mip_dual_bound is None else max(0.0, float(found.mip_dual_bound)) / SCALE
    if found.x is None:
        return None, bound
    best = [
        max(range(len(several)), key=lambda option, table=table: found.x[columns.option[table, option]])
        for table, several in enumerate(options)
    ]
    return tuple(options[table][option] for table, option in enumerate(best)), bound


def _added(model: StepModel, options: Sequence[Sequence[Choice]], columns: _Columns) -> list[list[tuple[int, float]]]:
    """Return for each sum of table costs the pairs (variable of an option, amount that the option adds)."""
    added: list[list[tuple[int, float]]] = [[] for _ in range(model.layout.size)]
    for table, several in enumerate(options):
        for number, choice in enumerate(several):
            for place, amount in model.costs.contribution(table, choice):
                added[place].append((columns.option[table, number], amount))
    return added


def _link_groups(model: StepModel, options: Sequence[Sequence[Choice]], columns: _Columns, rows: _Rows) -> None:
    """Add the constraints that activate the group of every chosen option."""
    groups = model.layout.groups
    for table, several in enumerate(options):
        for number, group in enumerate(groups):
            own = [
                columns.option[table, place]
                for place, one in enumerate(several)
                if ("one_by_one" if one.replicated_rows else one.kind) == group
            ]
            if own:
                rows.add([*((place, 1.0) for place in own), (columns.group(number), -1.0)])


def _bound_seconds(
    model: StepModel, columns: _Columns, added: Sequence[Sequence[tuple[int, float]]], rows: _Rows
) -> None:
    """Add lower bounds of each task's seconds: its fixed time, time per table, and the time of its largest sum."""
    for task, parts in enumerate(model.parts_of_tasks()):
        least = [(columns.group(parts.group), SCALE * parts.start)] if parts.group >= 0 else []
        constant = -SCALE * parts.start if parts.group < 0 else 0.0
        if parts.group >= 0 and parts.a_table:
            least += [(place, SCALE * parts.a_table) for place, _ in added[model.layout.tables(parts.group)]]
        for place, slope in parts.slopes or ((None, 0.0),):
            of_sum = [] if place is None else [(one, SCALE * slope * amount) for one, amount in added[place]]
            rows.add([*least, *of_sum, (columns.seconds(task), -1.0)], constant)


def _order_tasks(graph: TaskGraph, columns: _Columns, rows: _Rows) -> None:
    """Add the constraints on the order of tasks: dependencies end first, and a resource runs one task at a time."""
    for number, waits in enumerate(graph.waits_for):
        own = [(columns.seconds(number), 1.0), (columns.end(number), -1.0)]
        for one in waits:
            rows.add([*own, (columns.end(one), 1.0)])
        if not waits:
            rows.add(own)
    for number, first, work, is_apart in chains(graph):
        terms = [(columns.seconds(one), 1.0) for one in work]
        alone = [(columns.seconds(number), 1.0)] if is_apart else []
        begun = [] if first is None else [(columns.end(first), 1.0)]
        rows.add([*terms, *alone, *begun, (columns.end(number), -1.0)])


def _limit_memory(
    model: StepModel, columns: _Columns, added: Sequence[Sequence[tuple[int, float]]], rows: _Rows
) -> None:
    """Add the memory limits of the devices, for tables and for sent and received data."""
    layout = model.layout
    empty = model.memory_bytes([0.0] * layout.size)
    for device, own in enumerate(model.machine.devices):
        held = [(place, amount / GIB) for place, amount in added[layout.memory(device)]]
        for buffer in layout.buffers(device):
            held += [(place, 2 * amount / GIB) for place, amount in added[buffer]]
        rows.add(held, (own.memory_bytes - empty[device]) / GIB)
