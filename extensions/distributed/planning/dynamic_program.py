"""Optimal plan of a small model by dynamic programming over its tables.

A state is the vector of sums over the tables so far. The next table extends each state by each of its options, and
equal states are merged (Bellman, 1957; Alpa, OSDI 2022, plans the stages of a model in the same way). A state is
dropped if its tables do not fit into memory, or if its lower bound is above the step of a known plan. For the bound,
each further table adds the least of its options to each sum, and
a relaxation bounds the step of these sums. The final states are simulated, and
the best of them is optimal.

If there are too many states, dominated states are dropped too. The bound stays valid, because it grows with every sum.
The simulated step may not grow, because queues can change their order. The result is then a plan with a lower bound on
all plans.

The relaxation is a lower bound of the step time for any order of the queues; it increases with the duration of every
task. The simulator runs the first ready task, so that a shorter task may delay another one and make the step longer.

    e[j] >= e[i] + d[j]              for each i that j waits for
    e[j] >= e[i] + sum of d[k]       over all k between i and j on one device or link, which runs them one by one
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shunter.extensions.distributed.planning.simulate import NO_RESOURCE, TaskGraph
from shunter.extensions.distributed.planning.step import StepModel, step_of
from shunter.extensions.distributed.tables.sharding_types import Choice

MOST_STATES = 20_000
AT_ONCE = 4_096  # states that are bounded together
MOST_GROWN = 4  # times as many states may be searched for equal ones
ROUNDING = 1e-6  # by which a bound may be too high: slopes are read off at one large sum


class Chain(NamedTuple):
    """Chain of tasks on one device or link that bounds the end of a task.

    Attributes:
        task: The task.
        first: Task that ends before any task of the chain begins; None for the beginning of the step.
        work: Tasks of the chain, including `task` itself if it runs on the same device or link.
        is_apart: Whether `task` runs on another resource, and so begins after the chain.
    """

    task: int
    first: int | None
    work: tuple[int, ...]
    is_apart: bool


def chains(graph: TaskGraph) -> Iterator[Chain]:
    """Yield all distinct chains of at least two tasks in a task graph."""
    before: list[int] = []  # of each task, those that end before it begins, as bits
    for waits in graph.waits_for:
        bits = 0
        for one in waits:
            bits |= before[one] | 1 << one
        before.append(bits)
    on = [0] * len(graph.resources)
    for number, resource in enumerate(graph.resource):
        if resource != NO_RESOURCE:
            on[resource] |= 1 << number
    joints = [number for number, waits in enumerate(graph.waits_for) if len(waits) > 1]
    for number in joints:
        seen: set[int] = set()
        for first in (*(one for one in reversed(joints) if before[number] >> one & 1), None):
            after = -1 if first is None else sum(1 << one for one in range(number) if before[one] >> first & 1)
            for bits in on:
                is_on = bool(bits >> number & 1)
                between = bits & before[number] & after | (1 << number if is_on else 0)
                if between.bit_count() < 2 or between in seen:
                    continue  # one task is its own chain; the same tasks after a later joint say more
                seen.add(between)
                work = tuple(one for one in range(number + 1) if between >> one & 1)
                yield Chain(number, first, work, not is_on)


class Relaxation:
    """Bounds of the steps of many plans at once."""

    def __init__(self, model: StepModel) -> None:
        self._model, self._parts = model, model.parts_of_tasks()
        self._chains: list[list[tuple[int | None, np.ndarray, bool]]] = [[] for _ in model.graph.tasks]
        for task, first, work, is_apart in chains(model.graph):
            self._chains[task].append((first, np.array(work), is_apart))

    def bounds(self, sums: np.ndarray) -> np.ndarray:
        """Return the lower bounds of the step.

        Args:
            sums: Sums of the table costs of each plan, `[plans, sums]`.

        Returns:
            Seconds, `[plans]`.
        """
        taken = np.zeros((len(sums), len(self._parts)))  # seconds of each task in each plan
        for task, parts in enumerate(self._parts):
            seconds = np.full(len(sums), parts.start)
            if parts.slopes:
                seconds = seconds + np.max([slope * sums[:, place] for place, slope in parts.slopes], axis=0)
            if parts.group >= 0:
                tables = sums[:, self._model.layout.tables(parts.group)]
                seconds = np.where(tables > 0, seconds + parts.a_table * tables, 0.0)
            taken[:, task] = seconds
        ends = np.zeros_like(taken)
        for number, waits in enumerate(self._model.graph.waits_for):
            begin = ends[:, waits].max(axis=1) if waits else 0.0
            end = begin + taken[:, number]
            for first, work, is_apart in self._chains[number]:
                chain = taken[:, work].sum(axis=1) + (0.0 if first is None else ends[:, first])
                end = np.maximum(end, chain + taken[:, number] if is_apart else chain)
            ends[:, number] = end
        return ends[:, -1]


@dataclass(frozen=True)
class Programmed:
    """Best plan that the dynamic program found, with the lower bound of the step time of all plans.

    Attributes:
        is_best: Whether the plan is proven to be the fastest, despite rounding.
    """

    choices: tuple[Choice, ...]
    step_seconds: float
    bound_seconds: float
    is_best: bool


class _TooManyError(Exception):
    """Error of a search with too many states, or without time left."""


def best_by_states(
    model: StepModel,
    options: Sequence[Sequence[Choice]],
    known: Sequence[Choice],
    most_states: int = MOST_STATES,
    *,
    until: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> Programmed | None:
    """Find the plan with the shortest simulated step among the placements that each table may have.

    The step of the plan `known`, which fits, is an upper bound. The search stops at the time `until` of the clock, or
    beyond `most_states` states after a table; the result is then None.
    """
    begun = clock()
    for keeps_all, ends in ((True, begun + (until - begun) / 2), (False, until)):
        try:
            return _Program(model, options, most_states, ends, clock).solve(known, keeps_all=keeps_all)
        except _TooManyError:
            continue
    return None


class _Program:
    def __init__(
        self,
        model: StepModel,
        options: Sequence[Sequence[Choice]],
        most_states: int,
        until: float,
        clock: Callable[[], float],
    ) -> None:
        self._model, self._options, self._most, self._until, self._clock = model, options, most_states, until, clock
        self._bounds = Relaxation(model).bounds
        layout = model.layout
        self._room = np.array([float(device.memory_bytes) for device in model.machine.devices])
        self._room -= np.array(model.memory_bytes([0.0] * layout.size))
        self._memory = [layout.memory(one) for one in range(layout.count)]
        self._buffers = [layout.buffers(one) for one in range(layout.count)]

    def solve(self, known: Sequence[Choice], *, keeps_all: bool) -> Programmed:
        model, options = self._model, self._options
        added = [np.zeros((len(several), model.layout.size)) for several in options]
        for table, several in enumerate(options):
            for number, choice in enumerate(several):
                for place, amount in model.costs.contribution(table, choice):
                    added[table][number, place] = amount
        least = np.cumsum([np.zeros(model.layout.size), *(one.min(axis=0) for one in reversed(added))], axis=0)[::-1]
        best, best_seconds = tuple(known), step_of(model, list(known))[0]
        states, plans = np.zeros((1, model.layout.size)), np.zeros((1, 0), dtype=np.int64)
        bounds = np.zeros(1)
        for table in range(len(options)):
            states, plans, bounds = self._grown(states, plans, added[table], least[table + 1], best_seconds)
            kept = np.unique(states, axis=0, return_index=True)[1]
            if not keeps_all:
                kept = self._undominated(states, kept)
            if len(kept) > self._most:
                raise _TooManyError
            states, plans, bounds = states[kept], plans[kept], bounds[kept]
        at_least = min(bounds.min(initial=np.inf) * (1 - ROUNDING), best_seconds)
        for number in np.argsort(bounds, kind="stable"):
            if bounds[number] * (1 - ROUNDING) >= best_seconds:
                break
            self._check_time()
            plan = tuple(several[place] for several, place in zip(options, plans[number], strict=True))
            seconds = step_of(model, plan)[0]
            used = model.memory_bytes(states[number].tolist())
            fits = all(own <= one.memory_bytes for own, one in zip(used, model.machine.devices, strict=True))
            if seconds < best_seconds and fits:
                best, best_seconds = plan, seconds
        return Programmed(best, best_seconds, best_seconds if keeps_all else min(at_least, best_seconds), keeps_all)

    def _grown(
        self, states: np.ndarray, plans: np.ndarray, added: np.ndarray, least: np.ndarray, best_seconds: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each state extended by each option of the next table, with its plan and its lower bound.

        States whose bound is above `best_seconds` are left out.
        """
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for option, sums in enumerate(added):
            grown = states + sums
            bounds = self._bounded(grown + least)
            kept = np.flatnonzero(bounds * (1 - ROUNDING) < best_seconds)
            chosen = np.full((len(kept), 1), option)
            found.append((grown[kept], np.concatenate([plans[kept], chosen], axis=1), bounds[kept]))
            if sum(len(one) for one, _, _ in found) > MOST_GROWN * self._most:
                raise _TooManyError
        grown, chosen, bounds = (np.concatenate(one) for one in zip(*found, strict=True))
        return grown, chosen, bounds

    def _bounded(self, states: np.ndarray) -> np.ndarray:
        """Return the lower bound of each state; infinite if it does not fit."""
        bounds = np.full(len(states), np.inf)
        held = states[:, self._memory] + 2 * np.stack([states[:, one].sum(axis=1) for one in self._buffers], axis=1)
        fitting = np.flatnonzero((held <= self._room + 1).all(axis=1))  # memory is rounded to whole bytes
        for first in range(0, len(fitting), AT_ONCE):
            self._check_time()
            some = fitting[first : first + AT_ONCE]
            bounds[some] = self._bounds(states[some])
        return bounds

    def _undominated(self, states: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the states that no other state dominates."""
        kept: list[int] = []
        for number in numbers[np.argsort(states[numbers].sum(axis=1), kind="stable")]:  # smaller sums dominate
            if not kept or not (states[kept] <= states[number]).all(axis=1).any():
                kept.append(int(number))
                if len(kept) > self._most:
                    raise _TooManyError
            self._check_time()
        return np.array(kept, dtype=np.int64)

    def _check_time(self) -> None:
        if self._clock() >= self._until:
            raise _TooManyError
