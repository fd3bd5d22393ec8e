"""Sia (Jayaram Subramanya et al., SOSP 2023): type and number of accelerators of each job from an integer program."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.policies.options import Option, carry_out, options_of, restart_factor

ROUND_SECONDS = 60.0
FAIRNESS_POWER = -0.5
UNALLOCATED_COST = 1.1


class Sia:
    """Policy that gives each job at most one of its options per round, to maximise the total gain.

    Goodput is a job's progress per second, relative to its smallest option. Options that move a job are discounted by
    the cost of its restarts so far.
    """

    name = "sia"
    round_seconds: float | None = ROUND_SECONDS

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        states = [*board.running.values(), *board.waiting.values()]
        options = [options_of(state, board) for state in states]
        gains = []
        for state, own in zip(states, options, strict=True):
            factor = restart_factor(state, board)
            gains.append([option.goodput * (1.0 if option.is_kept else factor) for option in own])
        chosen = choose_options(
            gains,
            [[(option.accelerator, option.accelerators) for option in own] for own in options],
            board.live_counts(),
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
    """Solve the integer program: at most one option per job, within the capacity of each type.

    Args:
        gains: Goodput of each option of each job, above zero.
        demands: Accelerator type and number of each option.
        capacity: Number of accelerators by type.
        fixed: Jobs that must get one of their options.

    Returns:
        Index of the option of each job; None for a job that waits.
    """
    alike: dict[Kind, list[int]] = {}
    for job, (own, asked) in enumerate(zip(gains, demands, strict=True)):
        least = min((gain for gain in own if gain > 0), default=1.0)
        offers = tuple(
            # Cost compared with waiting; the power is negative, so a higher gain costs less.
            Offer((max(gain, 1e-12) / least) ** FAIRNESS_POWER - UNALLOCATED_COST, accelerator, count)
            for gain, (accelerator, count) in zip(own, asked, strict=True)
        )
        if offers:
            alike.setdefault(Kind(bool(fixed and fixed[job]), offers), []).append(job)
    chosen: list[int | None] = [None] * len(gains)
    for jobs, times in zip(alike.values(), _times(alike, capacity), strict=True):
        picks = [option for option, count in enumerate(times) for _ in range(count)]
        for job, option in zip(jobs, picks, strict=False):  # the others wait
            chosen[job] = option
    return chosen


class Offer(NamedTuple):
    """One option of a job; its cost is negative if it is better than waiting."""

    cost: float
    accelerator: str
    accelerators: int


class Kind(NamedTuple):
    """Group of jobs with equal options, which the integer program treats as one job with a count.

    Attributes:
        must: True if no job of the group may wait.
        offers: Options of each job of the group.
    """

    must: bool
    offers: tuple[Offer, ...]


def _times(alike: Mapping[Kind, Sequence[int]], capacity: dict[str, int]) -> list[list[int]]:
    """Return how often each option of each group of jobs is used, at the least cost.

    Args:
        alike: Indices of the jobs of each group.
        capacity: Number of accelerators by type.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    if not alike:
        return []
    types = {name: i for i, name in enumerate(capacity)}
    kinds = [i for i, kind in enumerate(alike) for _ in kind.offers]
    offers = [offer for kind in alike for offer in kind.offers]
    size, counts = len(offers), np.array([len(jobs) for jobs in alike.values()], dtype=float)
    once = csr_array((np.ones(size), (kinds, range(size))), shape=(len(alike), size))
    held = ([offer.accelerators for offer in offers], ([types[offer.accelerator] for offer in offers], range(size)))
    result = milp(
        np.array([offer.cost for offer in offers]),
        integrality=np.ones(size),
        bounds=Bounds(0, counts[kinds]),  # pyright: ignore[reportArgumentType]
        constraints=[
            LinearConstraint(once, counts * [kind.must for kind in alike], counts),  # pyright: ignore[reportArgumentType]
            LinearConstraint(csr_array(held, shape=(len(types), size)), -np.inf, list(capacity.values())),  # pyright: ignore[reportArgumentType]
        ],
        options={"mip_rel_gap": 1e-4},
    )
    assert result.x is not None, f"no options: {result.message}"
    whole = iter(np.rint(result.x).astype(int).tolist())
    return [list(islice(whole, len(kind.offers))) for kind in alike]
