"""Machines that are alike: of one accelerator type, and at least so fast."""

from typing import NamedTuple

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Placement
from shunter.extensions.fleet.job import ANYWHERE, Need


class Pool(NamedTuple):
    """Machines of a type.

    Attributes:
        accelerator: Their type.
        pace: The share of its own speed that the slowest of them computes at.
        machines: Indices, the slowest first.
        accelerators: Accelerators of all of them, free or not.
    """

    accelerator: str
    pace: float
    machines: tuple[int, ...]
    accelerators: int


def pools_of(board: Board) -> list[Pool]:
    """The pools of the machines that are there, by type; where some are slowed down, all of the type and the faster.

    A pool of a type holds those that follow it of the same type.
    """
    found = []
    for name, machines in board.cluster.machines_of.items():
        there = sorted((i for i in machines if not board.is_away(i)), key=lambda i: (board.paces[i], i))
        for pace in sorted({board.paces[i] for i in there}):
            members = tuple(i for i in there if board.paces[i] >= pace)
            found.append(Pool(name, pace, members, sum(board.cluster.machines[i].count for i in members)))
    return found


def place(board: Board, pool: Pool, accelerators: int, need: Need = ANYWHERE) -> Placement | None:
    """The tightest free place in a pool, on slow machines rather than on fast ones."""
    if len(pool.machines) == len(board.cluster.machines_of[pool.accelerator]) and _are_alike(board, pool):
        return board.place(accelerators, pool.accelerator, need=need)
    fitting = [(board.paces[i], board.free[i], i) for i in pool.machines if board.room(i, need) >= accelerators]
    if fitting:
        return ((min(fitting)[2], accelerators),)
    return board.fill(accelerators, pool.machines, is_sorted=True, need=need)


def _are_alike(board: Board, pool: Pool) -> bool:
    return all(board.paces[i] == pool.pace for i in pool.machines)
