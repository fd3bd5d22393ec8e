"""Simulation of one training step as a graph of tasks on devices and links, in full or incrementally after an edit.

After the execution simulator of FlexFlow (Jia, Zaharia and Aiken, "Beyond Data and Model Parallelism for Deep Neural
Networks", MLSys 2019, section 5). Each resource runs its tasks in the order in which they become ready; on ties the
lower task number comes first:

    ready = latest end of its dependencies
    start = the later of `ready` and the end of the previous task on its resource
    end   = start + seconds

A task of 0 seconds does not occupy its resource and ends when it is ready, so that plans with and without an exchange
have the same graph. Every task on a resource takes time, so these equations have one solution. The full simulation
solves them in order of time. The delta simulation repairs the previous solution until all equations hold again. Both
results are bit-identical.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

NO_RESOURCE = -1
MOST_CHANGES, MOST_REPAIRS = 0.1, 0.25  # as shares of the tasks; beyond them the whole step is simulated


@dataclass(frozen=True)
class Task:
    """Task of a training step.

    Attributes:
        name: Name, such as `lookup row_wise 3`.
        phase: Kind of work, such as `lookup`.
        resource: Number of the occupied device or link, or `NO_RESOURCE`.
        waits_for: Numbers of the task's dependencies, each lower than the task's own number.
    """

    name: str
    phase: str
    resource: int
    waits_for: tuple[int, ...]


class TaskGraph:
    """Tasks of a step, dependencies first, and names of devices and links; the plan determines the tasks' seconds."""

    def __init__(self, tasks: Sequence[Task], resources: Sequence[str]) -> None:
        self.tasks, self.resources = tuple(tasks), tuple(resources)
        self.waits_for = [task.waits_for for task in tasks]
        self.resource = [task.resource for task in tasks]
        self.followers: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for one in task.waits_for:
                assert one < number, "tasks follow their dependencies"
                self.followers[one].append(number)


@dataclass(frozen=True)
class Schedule:
    """Time at which each task is ready, starts and ends, in seconds from the start of the step."""

    ready: list[float]
    start: list[float]
    end: list[float]

    @property
    def seconds(self) -> float:
        """Duration of the simulated step in seconds."""
        return max(self.end, default=0.0)


def simulate(graph: TaskGraph, seconds: Sequence[float]) -> Schedule:
    """Simulate one whole training step of a plan; `seconds` are the durations of the tasks, at least 0."""
    count = len(graph.tasks)
    waiting = [len(one) for one in graph.waits_for]
    ready, start, end = [0.0] * count, [0.0] * count, [0.0] * count
    free = [0.0] * (len(graph.resources) + 1)
    resource, followers = graph.resource, graph.followers
    queue: list[tuple[float, int]] = [(0.0, number) for number in range(count) if not waiting[number]]
    while queue:
        at, number = heappop(queue)
        taken = seconds[number]
        if taken and resource[number] >= 0:
            begin = free[resource[number]]
            begin = max(begin, at)
            finish = free[resource[number]] = begin + taken
        else:
            begin, finish = at, at + taken
        start[number], end[number] = begin, finish
        for follower in followers[number]:
            ready[follower] = max(ready[follower], finish)
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(queue, (ready[follower], follower))
    return Schedule(ready=ready, start=start, end=end)


class DeltaSimulator:
    """Simulator that updates the schedule of a step incrementally when durations of tasks change.

    Attributes:
        seconds: Current duration of each task.
    """

    def __init__(self, graph: TaskGraph, seconds: Sequence[float]) -> None:
        self.graph, self.seconds = graph, list(seconds)
        self._simulate_all()

    @property
    def schedule(self) -> Schedule:
        """Current schedule of the step; the next call of `change` modifies it in place."""
        return self._schedule

    @property
    def step_seconds(self) -> float:
        """Duration of the step: the end of the last task, which depends on all others."""
        return self._schedule.end[-1]

    def change(self, changes: Mapping[int, float]) -> float:
        """Set new seconds of tasks, by task number, and update the schedule; return the new seconds of the step."""
        if len(changes) > max(4, MOST_CHANGES * len(self.seconds)):
            for number, taken in changes.items():
                self.seconds[number] = taken
            self._simulate_all()
            return self.step_seconds
        if not self._order:
            self._sort_queues()
        schedule, resource = self._schedule, self.graph.resource
        ready, start, end = schedule.ready, schedule.start, schedule.end
        dirty: list[tuple[float, int]] = []
        for number, taken in changes.items():
            before, self.seconds[number] = self.seconds[number], taken
            if before == taken:
                continue
            if resource[number] >= 0 and (not before) != (not taken):
                order = self._order[resource[number]]
                place = bisect_left(order, (ready[number], number))
                if taken:
                    order.insert(place, (ready[number], number))
                else:
                    del order[place]
                if place < len(order):
                    heappush(dirty, order[place] if not taken else order[min(place + 1, len(order) - 1)])
            heappush(dirty, (ready[number], number))
        budget = max(20, int(MOST_REPAIRS * len(ready)))
        last = -1
        while dirty:
            _, number = heappop(dirty)
            if number == last:
                continue
            last = number if not dirty or dirty[0][1] == number else -1
            budget -= 1
            if budget < 0:
                self._simulate_all()
                break
            self._repair(number, ready, start, end, dirty)
        return self.step_seconds

    def _repair(
        self,
        number: int,
        ready: list[float],
        start: list[float],
        end: list[float],
        dirty: list[tuple[float, int]],
    ) -> None:
        """Solve the equations of one task, and add tasks whose equations may be violated by this to `dirty`."""
        at = 0.0
        for one in self.graph.waits_for[number]:
            at = max(at, end[one])
        resource, taken = self.graph.resource[number], self.seconds[number]
        if resource < 0 or not taken:
            begin = at
            ready[number] = at
        else:
            order = self._order[resource]
            if at != ready[number]:
                place = bisect_left(order, (ready[number], number))
                del order[place]
                if place < len(order):
                    heappush(dirty, order[place])
                ready[number] = at
                insort(order, (at, number))
            place = bisect_left(order, (at, number))
            begin = at
            if place:
                begin = max(begin, end[order[place - 1][1]])
        finish = begin + taken
        start[number] = begin
        if finish != end[number]:
            end[number] = finish
            for follower in self.graph.followers[number]:
                heappush(dirty, (ready[follower], follower))
        if resource >= 0 and taken:
            self._note_next(number, at, end, start, dirty)

    def _note_next(
        self, number: int, at: float, end: list[float], start: list[float], dirty: list[tuple[float, int]]
    ) -> None:
        """Mark the next task on the resource if its start is no longer correct."""
        order = self._order[self.graph.resource[number]]
        place = bisect_left(order, (at, number)) + 1
        if place < len(order):
            following_ready, following = order[place]
            if start[following] != max(following_ready, end[number]):
                heappush(dirty, (following_ready, following))

    def _simulate_all(self) -> None:
        self._schedule = simulate(self.graph, self.seconds)
        self._order: list[list[tuple[float, int]]] = []

    def _sort_queues(self) -> None:
        """Set the tasks of each resource in the order in which it runs them."""
        self._order = [[] for _ in self.graph.resources]
        for number, resource in enumerate(self.graph.resource):
            if resource >= 0 and self.seconds[number]:
                self._order[resource].append((self._schedule.ready[number], number))
        for order in self._order:
            order.sort()


def critical_path(graph: TaskGraph, seconds: Sequence[float], schedule: Schedule) -> list[int]:
    """Return the chain of tasks that ends last: each starts when the previous task of the list ends."""
    number = max(range(len(schedule.end)), key=lambda one: (schedule.end[one], one))
    by_resource: dict[tuple[int, float], int] = {
        (graph.resource[one], end): one
        for one, end in enumerate(schedule.end)
        if graph.resource[one] >= 0 and seconds[one]
    }
    path = [number]
    while True:
        begin = schedule.start[number]
        if begin == 0.0 and not graph.waits_for[number]:
            break
        before = next((one for one in graph.waits_for[number] if schedule.end[one] == begin), None)
        if before is None:
            before = by_resource.get((graph.resource[number], begin))
        if before is None or before == number:
            break
        path.append(before)
        number = before
    return [one for one in reversed(path) if seconds[one]]
