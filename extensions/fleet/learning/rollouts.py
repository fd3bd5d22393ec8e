"""Schedules that are simulated to learn from, with every choice that was made and what came after it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.learned.choosers import Chooser
from shunter.extensions.fleet.learned.networks import Weights, probabilities, scores
from shunter.extensions.fleet.learned.objectives import Objective, rate
from shunter.extensions.fleet.learned.policy import Learned
from shunter.extensions.fleet.simulator import simulate


@dataclass(slots=True)
class Choice:
    """One choice of an agent.

    Attributes:
        agent: Who chose.
        candidates: Features of what could be chosen, (candidates, features).
        chosen: Index of what was.
        log_probability: Of it, under who chose.
        seconds: When.
    """

    agent: str
    candidates: np.ndarray
    chosen: int
    log_probability: float
    seconds: float


@dataclass(slots=True)
class Episode:
    """One simulated schedule.

    Attributes:
        choices: In their order.
        moments: When decisions were made, and the end.
        costs: What the objective had come to at each of these.
        steps: Choices that were made: what learning is counted in.
    """

    choices: list[Choice] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """What the objective came to."""
        return self.costs[-1]

    @property
    def steps(self) -> int:
        """How many choices were made."""
        return len(self.choices)

    def to_go(self, moments: np.ndarray) -> np.ndarray:
        """What the objective still came to after each moment."""
        return self.cost - np.interp(moments, self.moments, self.costs)


class Explorer:
    """Draws each choice by its probability, or evenly in the phase of exploration, and keeps it."""

    def __init__(self, weights: Weights | None, draw: np.random.Generator) -> None:
        self._weights, self._draw = weights, draw
        self.now = 0.0
        self.choices: list[Choice] = []

    def choose(self, agent: str, candidates: np.ndarray) -> int:
        """See `Chooser.choose`."""
        if self._weights is None:
            shares = np.full(len(candidates), 1.0 / len(candidates))
        else:
            shares = probabilities(scores(self._weights, agent, candidates))
        chosen = min(int(np.searchsorted(np.cumsum(shares), self._draw.random())), len(shares) - 1)
        self.choices.append(Choice(agent, candidates, chosen, float(np.log(shares[chosen])), self.now))
        return chosen


class Watched:
    """A policy of which it is kept what the objective comes to."""

    def __init__(self, policy: Learned, objective: Objective, explorer: Explorer | None = None) -> None:
        self._policy, self._explorer = policy, explorer
        self._objective: Objective = objective
        self.name, self.round_seconds = policy.name, policy.round_seconds
        self.episode = Episode()
        self._rate = 0.0

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        self._advance(board.now)
        if self._explorer is not None:
            self._explorer.now = board.now
        again = self._policy.decide(board)
        self._rate = rate(board, self._objective)
        return again

    def finish(self, now: float) -> Episode:
        """The episode, which has ended."""
        self._advance(now)
        if self._explorer is not None:
            self.episode.choices = self._explorer.choices
        return self.episode

    def _advance(self, now: float) -> None:
        episode = self.episode
        before, cost = (episode.moments[-1], episode.costs[-1]) if episode.moments else (now, 0.0)
        episode.moments.append(now)
        episode.costs.append(cost + self._rate * (now - before))


def explore(
    jobs: Sequence[Job],
    cluster: Cluster,
    objective: Objective,
    weights: Weights | None,
    draw: np.random.Generator,
    *,
    joint: bool = False,
) -> Episode:
    """Simulate a trace with choices drawn at random.

    Args:
        jobs: The trace.
        cluster: Where.
        objective: What is to be little.
        weights: Whose probabilities; None to draw evenly.
        draw: Where the draws come from.
        joint: Whether one agent chooses all at once.
    """
    explorer = Explorer(weights, draw)
    watched = Watched(Learned(explorer, objective, joint=joint), objective, explorer)
    return watched.finish(simulate(jobs, cluster, watched).end_seconds)


def exploit(
    jobs: Sequence[Job], cluster: Cluster, objective: Objective, chooser: Chooser, *, joint: bool = False
) -> float:
    """What the objective comes to with the best choices, as in use."""
    watched = Watched(Learned(chooser, objective, joint=joint), objective)
    return watched.finish(simulate(jobs, cluster, watched).end_seconds).cost
