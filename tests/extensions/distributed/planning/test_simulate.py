"""The simulator against an independent one, and repairs against simulations from the beginning."""

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.extensions.distributed.planning.simulate import (
    NO_RESOURCE,
    DeltaSimulator,
    Task,
    TaskGraph,
    critical_path,
    simulate,
)

EDITS = 10_000


def random_graph(chance: random.Random, tasks: int, resources: int) -> TaskGraph:
    made = [
        Task(
            f"task {number}",
            "work",
            chance.randrange(-1, resources),
            tuple(sorted(chance.sample(range(number), min(number, chance.randrange(4))))),
        )
        for number in range(tasks - 1)
    ]
    return TaskGraph(
        [*made, Task("end", "end", NO_RESOURCE, tuple(range(tasks - 1)))], [f"r{one}" for one in range(resources)]
    )


def random_seconds(chance: random.Random, graph: TaskGraph) -> list[float]:
    """Few different values, so that many tasks are ready at once; the last takes none."""
    return [chance.choice((0.0, 0.1, 0.3, 1.0, chance.random())) for _ in graph.tasks[:-1]] + [0.0]


def by_brute_force(graph: TaskGraph, seconds: list[float]) -> list[float]:
    """Ends by going through time: at each moment every free resource begins the first task that is ready."""
    count = len(graph.tasks)
    ends: dict[int, float] = {}
    while len(ends) < count:
        open_tasks = [
            (max((ends[one] for one in graph.waits_for[number]), default=0.0), number)
            for number in range(count)
            if number not in ends and all(one in ends for one in graph.waits_for[number])
        ]
        ready, number = min(open_tasks)
        resource = graph.resource[number]
        before = [
            ends[one] for one in ends if graph.resource[one] == resource and seconds[one] and resource != NO_RESOURCE
        ]
        begin = max([ready, *before]) if seconds[number] else ready
        ends[number] = begin + seconds[number]
    return [ends[number] for number in range(count)]


@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(1, 3))
def test_a_simulation_is_that_of_an_independent_one_on_tiny_graphs(seed: int, tasks: int, resources: int) -> None:
    chance = random.Random(seed)
    graph = random_graph(chance, tasks, resources)
    seconds = random_seconds(chance, graph)
    assert simulate(graph, seconds).end == by_brute_force(graph, seconds)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 4))
def test_a_repaired_simulation_is_the_same_to_the_last_bit(seed: int, tasks: int, resources: int) -> None:
    chance = random.Random(seed)
    graph = random_graph(chance, tasks, resources)
    simulated = DeltaSimulator(graph, random_seconds(chance, graph))
    for _ in range(20):
        edit(chance, graph, simulated)
        assert vars(simulated.schedule) == vars(simulate(graph, simulated.seconds))


def test_ten_thousand_edits_of_one_step_are_repaired_to_the_last_bit() -> None:
    chance = random.Random(21)
    graph = random_graph(chance, 60, 6)
    simulated = DeltaSimulator(graph, random_seconds(chance, graph))
    for _ in range(EDITS):
        edit(chance, graph, simulated)
        assert vars(simulated.schedule) == vars(simulate(graph, simulated.seconds))


def edit(chance: random.Random, graph: TaskGraph, simulated: DeltaSimulator) -> None:
    fresh = random_seconds(chance, graph)
    changed = chance.sample(range(len(graph.tasks) - 1), chance.randrange(1, min(5, len(graph.tasks))))
    assert simulated.change({number: fresh[number] for number in changed}) == simulated.schedule.end[-1]


@given(st.integers(0, 2**32))
def test_the_critical_path_is_a_chain_that_takes_the_whole_step(seed: int) -> None:
    chance = random.Random(seed)
    graph = random_graph(chance, 20, 3)
    seconds = random_seconds(chance, graph)
    schedule = simulate(graph, seconds)
    path = critical_path(graph, seconds, schedule)
    assert all(schedule.end[before] == schedule.start[after] for before, after in pairwise(path))
    if path:
        assert schedule.start[path[0]] == 0.0
        assert schedule.end[path[-1]] == schedule.seconds
