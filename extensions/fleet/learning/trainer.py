"""Training of a policy: exploration, then cycles of learning that each end with a snapshot (SEERL, AAMAS 2021).

The return of a choice is the objective accumulated after it, minus the mean over other rollouts of the same trace from
that time on. This baseline removes the variance between traces (input-dependent baselines; Mao et al., ICLR 2019).
Networks are updated by proximal policy optimisation (Schulman et al., 2017). At the beginning of each cycle the
learning rate is reset to its maximum, which moves the networks away from their last state, so that snapshots of one run
differ.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, cos, pi
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.learned.networks import CRITIC, Weights, draw_weights
from shunter.extensions.fleet.learned.objectives import Objective
from shunter.extensions.fleet.learned.policy import Learned
from shunter.extensions.fleet.learning.rollouts import Choice, Episode, explore

CLIP = 0.2
EPOCHS, IMITATION_EPOCHS = 3, 12
MINIBATCH = 512
MOST_GRADIENT = 0.5


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread within the block, because networks this small are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Networks:
    """Trainable actors and critic in torch: the formula of `learned/networks.py` for a batch of choices.

    Args:
        agents: Number of features by agent.
        hidden: Width of the layers.
        seed: Seed of the initial weights.
    """

    def __init__(self, agents: dict[str, int], hidden: int, seed: int) -> None:
        first = next(iter(agents))
        self.agents = tuple(agents)
        drawn = draw_weights({**agents, CRITIC: agents[first]}, hidden, seed)
        self.tensors = {name: torch.tensor(value, requires_grad=True) for name, value in drawn.items()}

    def load(self, weights: Weights) -> None:
        """Load the weights of policy networks; agents without weights in the file keep their current ones."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if name in weights and weights[name].shape == tuple(tensor.shape):
                    tensor.copy_(torch.from_numpy(weights[name]))

    def snapshot(self) -> Weights:
        """Return a copy of the weights in numpy, for decisions."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self.tensors.items()}

    def log_probabilities(self, agent: str, candidates: Tensor, mask: Tensor) -> Tensor:
        """Return the log probability of each candidate of each choice, (choices, candidates).

        The features, (choices, candidates, features), are padded; the mask, (choices, candidates), is False there.
        """
        return torch.log_softmax(self._scores(agent, candidates, mask).masked_fill(~mask, -1e9), dim=1)

    def values(self, candidates: Tensor, mask: Tensor) -> Tensor:
        """Return the critic's prediction of the remaining increase of the objective, (choices,)."""
        return (self._scores(CRITIC, candidates, mask) * mask).sum(dim=1) / mask.sum(dim=1)

    def _scores(self, agent: str, candidates: Tensor, mask: Tensor) -> Tensor:
        first = torch.tanh(candidates @ self.tensors[f"{agent}.w1"] + self.tensors[f"{agent}.b1"])
        split = first.shape[2]
        mean = (first * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        second = self.tensors[f"{agent}.w2"]
        shared = mean @ second[split:] + self.tensors[f"{agent}.b2"]
        return torch.tanh(first @ second[:split] + shared[:, None, :]) @ self.tensors[f"{agent}.v"]


def padded(candidates: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return the candidates of several choices as one padded tensor, with a mask of the candidates."""
    most = max(len(one) for one in candidates)
    found = np.zeros((len(candidates), most, candidates[0].shape[1]), dtype=np.float32)
    mask = np.zeros((len(candidates), most), dtype=bool)
    for i, one in enumerate(candidates):
        found[i, : len(one)] = one
        mask[i, : len(one)] = True
    return torch.from_numpy(found), torch.from_numpy(mask)


class Source(Protocol):
    """Source of job traces to train on."""

    def draw(self, draw: np.random.Generator) -> list[Job]:
        """Return one trace, as a list of jobs, drawn with the given random generator."""
        ...


@dataclass(frozen=True)
class Plan:
    """Length and size of a training run.

    Attributes:
        rounds: Number of updates of the networks.
        traces: Number of traces per round.
        rollouts: Number of rollouts per trace; the mean of the other rollouts is the baseline of each.
        cycles: Number of cycles of the learning rate, and of snapshots.
        exploring_rounds: Number of first rounds with uniformly sampled choices, to train the critic.
        hidden: Width of the layers.
        learning_rate: Maximum learning rate.
        entropy: Initial weight of the entropy bonus; falls to a tenth.
    """

    rounds: int = 120
    traces: int = 3
    rollouts: int = 8
    cycles: int = 6
    exploring_rounds: int = 1
    hidden: int = 32
    learning_rate: float = 5e-3
    entropy: float = 0.01


@dataclass
class Progress:
    """Progress of a training run.

    Attributes:
        costs: Mean cost per job of each round's rollouts.
        steps: Number of choices of the agents until the end of each round; a decision may need several.
        decisions: Number of calls of the policy until the end of each round.
    """

    costs: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)


def cyclic_rate(step: int, steps: int, cycles: int, highest: float) -> float:
    """Return the learning rate of a step, counted from 1: cosine decay in each cycle, then a restart."""
    length = ceil(steps / cycles)
    return highest / 2 * (1 + cos(pi * ((step - 1) % length) / length))


class Trainer:
    """Trainer of the agents on a cluster.

    Args:
        source: Source of the traces.
        cluster: Cluster of the simulations.
        objective: Objective to minimise.
        plan: Length and size of the training.
        seed: Seed of all random draws.
        policy: Policy whose agents learn.
    """

    def __init__(
        self,
        source: Source,
        cluster: Cluster,
        objective: Objective,
        plan: Plan,
        seed: int,
        *,
        policy: type[Learned] = Learned,
    ) -> None:
        self._source, self._cluster, self._plan, self._policy = source, cluster, plan, policy
        self._objective: Objective = objective
        self._draw = np.random.default_rng(seed)
        self.networks = Networks(policy.agents, plan.hidden, seed)
        self._optimiser = torch.optim.Adam(self.networks.tensors.values(), lr=plan.learning_rate)
        self.progress = Progress()
        self.snapshots: list[Weights] = []
        self.kept: list[Episode] = []

    @one_thread()
    def run(self, on_round: Callable[[int, Progress], None] | None = None) -> list[Weights]:
        """Train through all rounds, each followed by `on_round`; return the weights at the end of each cycle."""
        plan = self._plan
        length = ceil(plan.rounds / plan.cycles)
        for number in range(1, plan.rounds + 1):
            self.round(number)
            if on_round is not None:
                on_round(number, self.progress)
            if number % length == 0 or number == plan.rounds:
                self.snapshots.append(self.networks.snapshot())
        return self.snapshots

    def round(self, number: int) -> None:
        """Run one round: rollouts and an update."""
        plan = self._plan
        weights = None if number <= plan.exploring_rounds else self.networks.snapshot()
        choices: list[Choice] = []
        advantages: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        costs, decisions = [], 0
        for _ in range(plan.traces):
            jobs = self._source.draw(self._draw)
            episodes = [
                explore(jobs, self._cluster, self._objective, weights, self._draw, policy=self._policy)
                for _ in range(plan.rollouts)
            ]
            scale = max(float(np.mean([episode.cost for episode in episodes])), 1e-9)
            for i, episode in enumerate(episodes):
                rivals = [other for j, other in enumerate(episodes) if j != i]
                moments = np.array([choice.seconds for choice in episode.choices])
                own = episode.to_go(moments) / scale
                advantages.append(np.mean([other.to_go(moments) for other in rivals], axis=0) / scale - own)
                targets.append(own)
                choices += episode.choices
                decisions += len(episode.moments) - 1
            costs += [episode.cost / len(jobs) for episode in episodes]
            self.kept = [*self.kept, episodes[0]][-24:]
        for total, added in ((self.progress.steps, len(choices)), (self.progress.decisions, decisions)):
            total.append((total or [0])[-1] + added)
        self.progress.costs.append(float(np.mean(costs)))
        rate = cyclic_rate(number, plan.rounds, plan.cycles, plan.learning_rate)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._update(choices, np.concatenate(advantages), np.concatenate(targets), number)

    @one_thread()
    def imitate(self, choices: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> None:
        """Train the agents to imitate the choices of another policy (see `Demonstration`)."""
        optimiser = torch.optim.Adam(self.networks.tensors.values(), lr=3e-3)
        for _ in range(IMITATION_EPOCHS):
            for agent in self.networks.agents:
                own = [choice for choice in choices if choice[0] == agent]
                for batch in self._batches(len(own)):
                    candidates, there = padded([own[i][1] for i in batch])
                    right, _ = padded([own[i][2][:, None] for i in batch])
                    found = self.networks.log_probabilities(agent, candidates, there)
                    loss = -torch.logsumexp(found.masked_fill(right[:, :, 0] < 0.5, -1e9), dim=1).mean()
                    self._step(loss, optimiser)

    def _update(self, choices: list[Choice], advantages: np.ndarray, targets: np.ndarray, number: int) -> None:
        plan = self._plan
        advantages = advantages / (advantages.std() + 1e-8)
        entropy_weight = plan.entropy * (1 - 0.9 * number / plan.rounds)
        for agent in self.networks.agents:
            own = np.array([i for i, choice in enumerate(choices) if choice.agent == agent], dtype=int)
            if not len(own):
                continue
            for _ in range(EPOCHS):
                for batch in self._batches(len(own)):
                    index = own[batch]
                    candidates, there = padded([choices[i].candidates for i in index])
                    chosen = torch.tensor([choices[i].chosen for i in index])
                    old = torch.tensor([choices[i].log_probability for i in index], dtype=torch.float32)
                    gain = torch.tensor(advantages[index], dtype=torch.float32)
                    found = self.networks.log_probabilities(agent, candidates, there)
                    ratio = torch.exp(found.gather(1, chosen[:, None])[:, 0] - old)
                    clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
                    entropy = -(found.exp() * found.masked_fill(~there, 0.0)).sum(dim=1).mean()
                    loss = -torch.minimum(ratio * gain, clipped * gain).mean() - entropy_weight * entropy
                    if agent == self.networks.agents[0]:
                        target = torch.tensor(targets[index], dtype=torch.float32)
                        expected = self.networks.values(candidates, there)
                        loss = loss + torch.nn.functional.smooth_l1_loss(expected, target)
                    self._step(loss, self._optimiser)

    def _step(self, loss: torch.Tensor, optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.networks.tensors.values(), MOST_GRADIENT)
        optimiser.step()

    def _batches(self, count: int) -> list[np.ndarray]:
        order = self._draw.permutation(count)
        return [order[i : i + MINIBATCH] for i in range(0, count, MINIBATCH)]
