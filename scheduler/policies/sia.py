"""Sia (Jayaram Subramanya et al., SOSP 2023): type and number of accelerators of each job from an integer program."""

from collections.abc import Sequence

import numpy as np

from scheduler.board import Board
from scheduler.policies.options import Option, carry_out, options_of, restart_factor

ROUND_SECONDS = 60.0
FAIRNESS_POWER = -0.5
UNALLOCATED_COST = 1.1


class Sia:
    """In each round every job gets one of its options or none, so that all together gain most.

    Goodput is what a job would do a second, relative to its least option; options that move a job count less, by what
    its restarts have cost so far.
    """

    name = "sia"
    round_seconds: float | None = ROUND_SECONDS

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        states = [*board.running.values(), *board.waiting.values()]
        options = [options_of(state, board) for state in states]
        gains = []
        for state, own in zip(states, options, strict=True):
            factor = restart_factor(state, board)
            gains.append([option.goodput * (1.0 if option.is_kept else factor) for option in own])
        chosen = choose_options(
            gains,
            [[(option.accelerator, option.accelerators) for option in own] for own in options],
            board.there(),
            fixed=[not state.job.preemptible and state.placement is not None for state in states],
        )
        picks: dict[str, Option] = {
            state.name: own[i] for state, own, i in zip(states, options, chosen, strict=True) if i is not None
        }
        carry_out(picks, board)


def choose_options(
    gains: Sequence[Sequence[float]],
    demands: Sequence[Sequence[tuple[str, int]]],
    capacity: dict[str, int],
    fixed: Sequence[bool] | None = None,
) -> list[int | None]:
    """The integer program: at most one option a job, within the capacity of each type.

    Args:
        gains: Goodput of each option of each job, above zero.
        demands: Type and number of accelerators of each.
        capacity: Accelerators by type.
        fixed: Jobs that must get one of their options.

    Returns:
        For each job the index of its option; None for one that waits.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    costs, rows, held_rows, held_columns, held = [], [], [], [], []
    types = {name: i for i, name in enumerate(capacity)}
    for job, (own, asked) in enumerate(zip(gains, demands, strict=True)):
        least = min((gain for gain in own if gain > 0), default=1.0)
        for gain, (accelerator, count) in zip(own, asked, strict=True):
            # What is gained against waiting; the power turns more into less.
            costs.append((max(gain, 1e-12) / least) ** FAIRNESS_POWER - UNALLOCATED_COST)
            held_rows.append(types[accelerator])
            held_columns.append(len(rows))
            held.append(count)
            rows.append(job)
    if not costs:
        return [None] * len(gains)
    size = len(costs)
    once = csr_array((np.ones(size), (rows, range(size))), shape=(len(gains), size))
    fits = csr_array((held, (held_rows, held_columns)), shape=(len(types), size))
    must = np.array([1.0 if fixed and fixed[job] else 0.0 for job in range(len(gains))])
    result = milp(
        np.array(costs),
        integrality=np.ones(size),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(once, must, 1),  # pyright: ignore[reportArgumentType]
            LinearConstraint(fits, -np.inf, list(capacity.values())),  # pyright: ignore[reportArgumentType]
        ],
        options={"mip_rel_gap": 1e-4},
    )
    assert result.x is not None, f"no options: {result.message}"
    chosen: list[int | None] = [None] * len(gains)
    first = np.searchsorted(rows, np.arange(len(gains)))
    for index in np.flatnonzero(result.x > 0.5):
        chosen[rows[index]] = int(index - first[rows[index]])
    return chosen
