"""Elastic policies, which choose for each job an accelerator type and number by its goodput: Sia and Pollux."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState, tightest
from shunter.extensions.fleet.policies.role import run_picked

FAIRNESS_POWER = -0.5
UNALLOCATED_COST = 1.1


class Option(NamedTuple):
    """One way to run a job.

    Attributes:
        accelerator: Accelerator type.
        goodput: Share of its remaining work that the job would do per second in a consolidated placement.
        is_kept: True for the job's current type and number.
    """

    accelerator: str
    accelerators: int
    goodput: float
    is_kept: bool


def options_of(state: JobState, board: Board) -> list[Option]:
    """Return the options of a job on machines that are up; a running job that cannot be stopped has only its own."""
    state.advance_to(board.now)
    held = board.current_type(state)
    found, there = [], board.live_counts()
    for name in state.job.types(board.cluster):
        for count in state.job.work.counts(state.job.asks(name)):
            is_kept = held == name and state.held == count
            if count > there[name] or (held is not None and not state.job.preemptible and not is_kept):
                continue
            seconds = state.seconds_left(tightest(count, board.cluster, name))
            found.append(Option(name, count, 1.0 / max(seconds, 1e-6), is_kept))
    return found


def restart_factor(state: JobState, board: Board) -> float:
    """Return the factor by which a move reduces goodput: (T - N S) / (T + S).

    T is the age of the job, N the number of its restarts and S the seconds of a restart.
    """
    age = board.now - state.job.arrival_seconds
    cost = state.job.move_seconds
    if not state.starts or not cost:
        return 1.0
    return max(age - (state.starts - 1) * cost, 0.0) / (age + cost)


class Sia:
    """Sia (Jayaram Subramanya et al., SOSP 2023): at most one option of each job per round, of the largest total gain.

    Goodput is a job's progress per second, relative to its smallest option. Options that move a job are discounted by
    the cost of its restarts so far.
    """

    name = "sia"
    round_seconds: float | None = 60.0

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
            [[option[:2] for option in own] for own in options],
            board.live_counts(),
            fixed=[not state.job.preemptible and state.placement is not None for state in states],
        )
        picked = zip(states, options, chosen, strict=True)
        run_picked({state.name: own[i][:2] for state, own, i in picked if i is not None}, board)


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
    """Return how often each option of each group of jobs is used, at the least cost; groups map to indices of jobs."""
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


class Pollux:
    """Pollux (Qiao et al., OSDI 2021): accelerators go to jobs with the most gain of goodput; batches adapt.

    Each job gets its smallest number of accelerators, the oldest first. Each further step enlarges the job that raises
    the harmonic mean of all speed-ups most. Pollux itself searches allocations by a genetic algorithm and learns each
    job's goodput while it runs; here the goodput is known. A job with a fixed batch size keeps its number.
    """

    name = "pollux"
    round_seconds: float | None = 60.0

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        states = sorted(
            (*board.running.values(), *board.waiting.values()),
            key=lambda state: (state.placement is None or state.job.preemptible, state.job.arrival_seconds, state.name),
        )
        left = board.live_counts()
        options = {state.name: options_of(state, board) for state in states}
        picks: dict[str, Option] = {}
        for state in states:
            fitting = [option for option in options[state.name] if option.accelerators <= left[option.accelerator]]
            if fitting:
                least = min(fitting, key=lambda option: (option.accelerators, -option.goodput))
                picks[state.name] = least
                left[least.accelerator] -= least.accelerators
        self._grow(picks, options, left)
        for state in states:
            self._keep_unless_it_pays(state, picks, options, left, board)
        run_picked({name: pick[:2] for name, pick in picks.items()}, board)

    @staticmethod
    def _grow(picks: dict[str, Option], options: dict[str, list[Option]], left: dict[str, int]) -> None:
        """Allocate accelerators step by step, each to the job that gains most."""
        while True:
            best: tuple[float, str, Option] | None = None
            for name, now in picks.items():
                for option in options[name]:
                    more = option.accelerators - now.accelerators
                    if option.accelerator != now.accelerator or more <= 0 or more > left[now.accelerator]:
                        continue
                    base = options[name][0].goodput
                    gain = (base / now.goodput - base / option.goodput) / more
                    if gain > 1e-9 and (best is None or gain > best[0]):
                        best = gain, name, option
            if best is None:
                return
            _, name, option = best
            left[option.accelerator] -= option.accelerators - picks[name].accelerators
            picks[name] = option

    @staticmethod
    def _keep_unless_it_pays(
        state: JobState, picks: dict[str, Option], options: dict[str, list[Option]], left: dict[str, int], board: Board
    ) -> None:
        """Keep a running job's placement if the restart would cost more than the change gains."""
        pick = picks.get(state.name)
        kept = next((option for option in options[state.name] if option.is_kept), None)
        if pick is None or kept is None or pick.is_kept or pick.accelerator != kept.accelerator:
            return
        fits = kept.accelerators - pick.accelerators <= left[kept.accelerator]
        if fits and pick.goodput * restart_factor(state, board) <= kept.goodput:
            left[kept.accelerator] -= kept.accelerators - pick.accelerators
            picks[state.name] = kept
