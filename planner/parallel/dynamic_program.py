"""The best plan of a small model by dynamic programming over its tables: the oracle beside the integer program.

A state is what the tables so far add up to. The next table extends each by each of its options; a state that is nowhere
below another adds up to a step at least as long whatever follows, and is dropped (Bellman, 1957; Alpa, OSDI 2022, plans
the stages of a model likewise). So is one whose step is as long as that of a known plan even if every further table
added, to each sum, the least of all its options.
"""

from collections.abc import Sequence

import numpy as np

from planner.parallel.costs import Choice
from planner.parallel.simulate import simulate
from planner.parallel.step import StepModel, step_of

MOST_STATES = 20_000


def best_by_states(
    model: StepModel,
    options: Sequence[Sequence[Choice]],
    known: Sequence[Choice],
    most_states: int = MOST_STATES,
) -> tuple[tuple[Choice, ...], float] | None:
    """The plan with the shortest simulated step, and that step.

    Args:
        model: Simulator of the step.
        options: Placements that each table may have.
        known: A plan that fits, which bounds what is kept.
        most_states: States of one table beyond which it gives up.

    Returns:
        None where there are more states.
    """
    added = [np.array([_sums(model, table, one) for one in several]) for table, several in enumerate(options)]
    least = np.cumsum([np.zeros(model.layout.size), *(one.min(axis=0) for one in reversed(added))], axis=0)[::-1]
    room = np.array([device.memory_bytes for device in model.machine.devices])
    best, best_seconds = tuple(known), step_of(model, list(known))[0]
    states, plans = np.zeros((1, model.layout.size)), [()]
    for table, several in enumerate(options):
        grown = (states[:, None, :] + added[table][None, :, :]).reshape(-1, model.layout.size)
        plans = [(*plan, choice) for plan in plans for choice in several]
        kept = []
        for number, sums in enumerate(grown):
            at_least = (sums + least[table + 1]).tolist()
            fits = (np.array(model.memory_bytes(at_least)) <= room).all()
            if fits and simulate(model.graph, model.seconds(at_least)).end[-1] < best_seconds:
                kept.append(number)
        kept = _undominated(grown, kept)
        if len(kept) > most_states:
            return None
        states, plans = grown[kept], [plans[number] for number in kept]
    for sums, plan in zip(states, plans, strict=True):
        seconds = simulate(model.graph, model.seconds(sums.tolist())).end[-1]
        if seconds < best_seconds:
            best, best_seconds = plan, seconds
    return best, best_seconds


def _sums(model: StepModel, table: int, choice: Choice) -> list[float]:
    sums = [0.0] * model.layout.size
    for place, amount in model.costs.contribution(table, choice).amounts:
        sums[place] = amount
    return sums


def _undominated(states: np.ndarray, numbers: Sequence[int]) -> list[int]:
    """Those of the states that no other is below everywhere; of equal ones the first."""
    kept: list[int] = []
    for number in sorted(numbers, key=lambda one: states[one].sum()):  # whoever is below has a smaller sum
        if not kept or not (states[kept] <= states[number]).all(axis=1).any():
            kept.append(number)
    return kept
