"""Objectives that a learned policy minimises, and their rate of increase at a moment."""

from typing import Literal

from shunter.errors import RequestError
from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster

Objective = Literal["jct", "makespan", "energy", "cost"]
FIGURES = {  # name of each objective among the figures of a schedule
    "jct": "jct.mean_seconds",
    "makespan": "makespan_seconds",
    "energy": "energy_joules",
    "cost": "cost",
}
HOUR = 3600.0


def rate(board: Board, objective: Objective) -> float:
    """Return the increase of the objective per second in the current state of the cluster.

    This is the number of unfinished jobs for `jct`, 1 for `makespan`, watts for `energy`, price per second for `cost`.
    """
    if objective == "jct":
        return float(len(board.waiting) + len(board.running))
    if objective == "makespan":
        return 1.0
    if objective == "energy":
        return watts(board)
    cost_per_hour = 0.0
    for i, machine in enumerate(board.cluster.machines):
        if not board.is_down(i):
            cost_per_hour += board.cluster.type_of(machine.accelerator).price_per_hour * (machine.count - board.free[i])
    return cost_per_hour / HOUR


def watts(board: Board) -> float:
    """Return the power of all accelerators: idle ones, and busy ones under the caps of their machines."""
    total = 0.0
    for i, machine in enumerate(board.cluster.machines):
        kind = board.cluster.type_of(machine.accelerator)
        busy = 0 if board.is_down(i) else machine.count - board.free[i]
        total += kind.idle_watts * (machine.count - busy) + kind.busy_watts * kind.cap(board.caps[i])[0] * busy
    return total


def check_objective(objective: Objective, cluster: Cluster) -> None:
    """Raise if an objective cannot be computed.

    Raises:
        RequestError: Power or prices are unknown.
    """
    if objective == "energy" and not cluster.has_watts:
        raise RequestError("The objective energy needs the power of every accelerator: give it in the cluster's file.")
    if objective == "cost" and not cluster.has_prices:
        raise RequestError("The objective cost needs the price of every accelerator: give it in the cluster's file.")
