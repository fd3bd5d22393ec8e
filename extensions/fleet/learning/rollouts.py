"""Simulated schedules for learning, with every choice and its consequences."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.learned.networks import Chooser, Weights, probabilities, scores
from shunter.extensions.fleet.learned.objectives import Objective, rate
from shunter.extensions.fleet.learned.policy import Learned
from shunter.extensions.fleet.simulator import simulate


@dataclass(slots=True)
class Choice:
    """One choice of an agent.

    Attributes:
        agent: Agent that chose.
        candidates: Features of the allowed candidates, (candidates, features).
        chosen: Index of the chosen candidate.
        log_probability: Log probability of the choice under the policy that made it.
        seconds: Simulated time of the choice.
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
        choices: All choices, in order.
        moments: Times of the decisions, and the end.
        costs: Accumulated objective at each of these times.
    """

    choices: list[Choice] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """Final value of the objective."""
        return self.costs[-1]

    def to_go(self, moments: np.ndarray) -> np.ndarray:
        """Return by how much the objective still grows from each time in `moments` until the end of the episode."""
        return self.cost - np.interp(moments, self.moments, self.costs)


class Explorer:
    """Chooser that samples each choice from the probabilities, or uniformly during exploration, and records it."""

    def __init__(self, weights: Weights | None, draw: np.random.Generator) -> None:
        self._weights, self._draw = weights, draw
        self.now = 0.0
        self.choices: list[Choice] = []

    def choose(self, agent: str, candidates: np.ndarray) -> int:
        """Return the index of the chosen candidate."""
        if self._weights is None:
            shares = np.full(len(candidates), 1.0 / len(candidates))
        else:
            shares = probabilities(scores(self._weights, agent, candidates))
        chosen = min(int(np.searchsorted(np.cumsum(shares), self._draw.random())), len(shares) - 1)
        self.choices.append(Choice(agent, candidates, chosen, float(np.log(shares[chosen])), self.now))
        return chosen


class ObjectiveRecorder:
    """Wrapper of a policy that records the objective over time."""

    def __init__(self, policy: Learned, objective: Objective, explorer: Explorer | None = None) -> None:
        self._policy, self._explorer = policy, explorer
        self._objective: Objective = objective
        self.name, self.round_seconds = policy.name, policy.round_seconds
        self.episode = Episode()
        self._rate = 0.0

    def decide(self, board: Board) -> float | None:
        """Let the wrapped policy start, stop and move jobs, and record the objective until now."""
        self._advance(board.now)
        if self._explorer is not None:
            self._explorer.now = board.now
        again = self._policy.decide(board)
        self._rate = rate(board, self._objective)
        return again

    def finish(self, now: float) -> Episode:
        """Return the completed episode."""
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
    policy: type[Learned] = Learned,
) -> Episode:
    """Simulate a trace with choices sampled from the probabilities of the networks; uniformly without networks."""
    explorer = Explorer(weights, draw)
    watched = ObjectiveRecorder(policy(explorer, objective), objective, explorer)
    return watched.finish(simulate(jobs, cluster, watched).end_seconds)


def exploit(
    jobs: Sequence[Job], cluster: Cluster, objective: Objective, chooser: Chooser, policy: type[Learned] = Learned
) -> float:
    """Simulate the jobs with the learned policy, without exploration, and return the final objective."""
    watched = ObjectiveRecorder(policy(chooser, objective), objective)
    return watched.finish(simulate(jobs, cluster, watched).end_seconds).cost
