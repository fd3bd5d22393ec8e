"""Lower bound of the step time for any order of the queues; it increases with the duration of every task.

    e[j] >= e[i] + d[j]              for each i that j waits for
    e[j] >= e[i] + sum of d[k]       over all k between i and j on one device or link, which runs them one by one

The simulator runs the first ready task, so that a shorter task may delay another one and make the step longer. The
bound does not depend on such an order. The integer program and the dynamic program use it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shunter.extensions.distributed.planning.simulate import NO_RESOURCE, TaskGraph
from shunter.extensions.distributed.planning.step import StepModel


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
        taken = self._seconds(sums)
        ends = np.zeros_like(taken)
        for number, waits in enumerate(self._model.graph.waits_for):
            begin = ends[:, waits].max(axis=1) if waits else 0.0
            end = begin + taken[:, number]
            for first, work, is_apart in self._chains[number]:
                chain = taken[:, work].sum(axis=1) + (0.0 if first is None else ends[:, first])
                end = np.maximum(end, chain + taken[:, number] if is_apart else chain)
            ends[:, number] = end
        return ends[:, -1]

    def _seconds(self, sums: np.ndarray) -> np.ndarray:
        """Return the seconds of each task in each plan."""
        taken = np.zeros((len(sums), len(self._parts)))
        layout = self._model.layout
        for task, parts in enumerate(self._parts):
            seconds = np.full(len(sums), parts.start)
            if parts.slopes:
                seconds = seconds + np.max([slope * sums[:, place] for place, slope in parts.slopes], axis=0)
            if parts.group >= 0:
                tables = sums[:, layout.tables(parts.group)]
                seconds = np.where(tables > 0, seconds + parts.a_table * tables, 0.0)
            taken[:, task] = seconds
        return taken
