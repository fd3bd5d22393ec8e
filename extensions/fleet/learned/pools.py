"""Pools: machines of one accelerator type with a minimum relative speed."""

from typing import NamedTuple

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Placement
from shunter.extensions.fleet.job import ANYWHERE, Need


class Pool(NamedTuple):
    """Pool of machines of one accelerator type.

    Attributes:
        pace: Relative speed of the slowest machine.
        machines: Indices of the machines, the slowest first.
        accelerators: Number of their accelerators, free or not.
    """

    accelerator: str
    pace: float
    machines: tuple[int, ...]
    accelerators: int


def pools_of(board: Board) -> list[Pool]:
    """Return the pools of live machines: all machines of a type, and during slowdowns also its faster machines.

    A pool contains all later pools of the same type.
    """
    found = []
    for name, machines in board.cluster.machines_of.items():
        there = sorted((i for i in machines if not board.is_down(i)), key=lambda i: (board.speeds[i], i))
        for pace in sorted({board.speeds[i] for i in there}):
            members = tuple(i for i in there if board.speeds[i] >= pace)
            found.append(Pool(name, pace, members, sum(board.cluster.machines[i].count for i in members)))
    return found


def place(board: Board, pool: Pool, accelerators: int, need: Need = ANYWHERE) -> Placement | None:
    """Return the tightest free placement in a pool, preferring slow machines to fast ones."""
    if len(pool.machines) == len(board.cluster.machines_of[pool.accelerator]) and _are_alike(board, pool):
        return board.place(accelerators, pool.accelerator, need=need)
    fitting = [(board.speeds[i], board.free[i], i) for i in pool.machines if board.room(i, need) >= accelerators]
    if fitting:
        return ((min(fitting)[2], accelerators),)
    return board.fill(accelerators, pool.machines, is_sorted=True, need=need)


def _are_alike(board: Board, pool: Pool) -> bool:
    return all(board.speeds[i] == pool.pace for i in pool.machines)
