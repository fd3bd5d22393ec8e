"""Differentiable architecture search: a super-net learns its weights and its architecture logits in turn.

After DNAS for recommenders (Krishna et al., arXiv 2110.14812), with its schedule: the weights learn alone first. Then
epochs of the weights on four fifths of the training rows alternate with epochs of the logits theta on the last fifth,
while the temperature of the masks falls. The validation part is never read here: it evaluates the sampled architectures
after training from scratch.

Differences from the paper, with reasons:

- theta uses Adam with beta_1 = 0.5, as in DARTS (Liu et al., ICLR 2019), not SGD. The paper takes some ten thousand
  steps of theta on 45 million rows; here there may be a hundred. The gradient of a table's width is orders of magnitude
  smaller than that of a layer's, so one learning rate of SGD does not suit both.
- weights use the optimisers with which the architectures are trained afterwards: Adam for the layers, fused row-wise
  Adagrad for the tables.
- the loss is in units of NE, and the cost enters as the logarithm of its ratio to an average architecture. A weight
  therefore means the same on all data, at any cost, and for other search methods.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader, shuffled_windows
from shunter.engine.loop.loss import mean_losses, task_weights, weighted_sum
from shunter.engine.loop.step import applied, autocast, build_dense_optimizer, prefetch, seeded
from shunter.engine.stopping import ShouldStop, StopReason
from shunter.errors import RequestError, TrainingError
from shunter.extensions.nas.supernet.costs import CostTable, expected_cost
from shunter.extensions.nas.supernet.network import Supernet
from shunter.extensions.nas.supernet.space import Masks

Part = Literal["weights", "theta"]
# The fractional parts of its multiples are evenly distributed, for any period in the order of the rows (Weyl, 1916).
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class SupernetSchedule:
    """Training schedule of a super-net.

    Attributes:
        most_samples: Most rows for weights and theta together in a pass; on larger logs each pass takes other rows. A
            mixture costs several times as much as a single architecture, so passes over a large log would take longer
            than all trials.
        warmup_epochs: Passes of the weights alone before theta begins to learn.
        rounds: Number of rounds, each with a pass of the weights and one of theta.
        first_temperature: Temperature of the masks in the warm-up and the first round.
        temperature_rate: Rate r of `first_temperature * exp(-r * round)`.
        lowest_temperature: Lower bound; below it the gradient of theta vanishes.
        held_out_share: Share of the training rows from which theta learns.
        theta_steps: Fewest steps of theta in a round; on few rows these are several passes.
        theta_learning_rate: Step size of theta's Adam.
        largest_every: Interval of weight steps that train the largest architecture alone; 0 for none. In mixtures of
            equally likely candidates, few samples take a path through all layers, so deep paths would be trained least;
            sandwich rule of Yu and Huang, "Universally Slimmable Networks", ICCV 2019.
        most_gradient: Norm to which the gradient of the layers is clipped.
        form: Form of the cost in theta's loss, where cost is relative to an average architecture: `linear` is
            `NE + weight * log(cost)`, `multiplicative` is `NE * cost ** weight` (Tan et al., CVPR 2019).
    """

    most_samples: int = 250_000
    warmup_epochs: int = 1
    rounds: int = 3
    first_temperature: float = 1.0
    temperature_rate: float = 0.2
    lowest_temperature: float = 0.1
    held_out_share: float = 0.2
    theta_steps: int = 40
    theta_learning_rate: float = 0.1
    largest_every: int = 3
    most_gradient: float = 100.0
    form: Literal["linear", "multiplicative"] = "linear"

    def temperature(self, completed: int) -> float:
        """Return the temperature of the masks after a number of rounds."""
        return max(self.lowest_temperature, self.first_temperature * math.exp(-self.temperature_rate * completed))


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """State of theta after a round.

    Attributes:
        temperature: Temperature of the masks.
        weights_ne: Mean NE of the mixtures over the pass of the weights; None without such a pass.
        theta_ne: Mean NE over the pass of theta, on rows from which the weights do not learn.
        cost: Expected cost of theta's architectures, in the unit of the cost table; None without a table.
        probabilities: Probabilities of each choice's candidates.
    """

    temperature: float
    weights_ne: float | None
    theta_ne: float
    cost: float | None
    probabilities: dict[str, list[float]]


@dataclass(frozen=True, kw_only=True)
class Learned:
    """Result of learning theta at one weight of the cost.

    Attributes:
        weight: Weight of the cost: increase of NE that is worth a cost lower by a factor e.
        theta: Logits of each choice.
        rounds: One report per round; an early stop may have interrupted the last round's pass of theta.
        stop_reason: Reason of an early stop; None otherwise.
    """

    weight: float
    theta: dict[str, list[float]]
    rounds: tuple[RoundReport, ...]
    stop_reason: StopReason | None


class SupernetTraining:
    """Trainer of one super-net in stages: the warm-up, then rounds for one weight of the cost after the other.

    A sweep with a fresh super-net for each weight would be expensive. Instead, each weight continues from the one
    before, from the smallest to the largest. A further point of a front then takes one round, or a pass of theta alone.
    Each stage has its own optimisers and random numbers. With `state` saved after each, an interrupted sweep gives the
    same results.

    Args:
        network: Network on the device of `execution`.
        dataset: Data set; only its training part is read.
        execution: Device, threads, precision and batch size.
        seed: Seed of the split of the rows, the order of batches, and the masks.

    Attributes:
        passes: Number of passes of weights or theta so far.
        rounds: Number of rounds so far.

    Raises:
        RequestError: All labels are of one class.
    """

    def __init__(
        self,
        network: Supernet,
        dataset: Dataset,
        hyperparameters: Hyperparameters,
        execution: Execution,
        schedule: SupernetSchedule,
        *,
        seed: int = 0,
    ) -> None:
        self.network, self.execution, self.schedule, self.seed = network, execution, schedule, seed
        self.passes = self.rounds = 0
        self.hyperparameters = hyperparameters
        self._loader = BatchLoader(dataset, "train", min(execution.batch_size, dataset.splits["train"].rows))
        self._task_weights = task_weights(hyperparameters.task_weights, dataset.features.tasks, execution.device)
        self._base_entropy = _base_entropy(dataset)

    def warm_up(self, should_stop: ShouldStop | None = None) -> StopReason | None:
        """Train the weights with all candidates equally likely; return the reason of an early stop.

        Raises:
            TrainingError: The loss is NaN.
        """
        with applied(self.execution) as device, seeded(self._stage_seed(), device):
            optimizer, stopped = build_dense_optimizer(self.network.layers, self.hyperparameters), None
            for _ in range(self.schedule.warmup_epochs):
                _, stopped = self._learn_weights(optimizer, self.schedule.first_temperature, should_stop)
                if stopped is not None:
                    break
        return stopped

    def learn(
        self,
        weight: float,
        costs: CostTable | None = None,
        *,
        rounds: int | None = None,
        theta_alone: bool = False,
        should_stop: ShouldStop | None = None,
    ) -> Learned:
        """Continue to train weights and theta in turn.

        Args:
            weight: Weight of the cost: increase of NE that is worth a cost lower by a factor e.
            costs: Costs of the architectures; None to ignore costs.
            rounds: Number of rounds; None for the schedule's.
            theta_alone: If True, the weights are frozen.
            should_stop: Called after each step; a returned reason ends the training with the current theta.

        Raises:
            TrainingError: The loss is NaN.
        """
        network, schedule, stopped = self.network, self.schedule, None
        reports, loss = list[RoundReport](), self._theta_loss(weight, costs)
        with applied(self.execution) as device, seeded(self._stage_seed(), device):
            of_weights = build_dense_optimizer(network.layers, self.hyperparameters)
            rate = schedule.theta_learning_rate
            of_theta = torch.optim.Adam(network.choices.parameters(), lr=rate, betas=(0.5, 0.999))
            for _ in range(schedule.rounds if rounds is None else rounds):
                temperature, weights_ne = schedule.temperature(self.rounds), None
                if not theta_alone:
                    weights_ne, stopped = self._learn_weights(of_weights, temperature, should_stop)
                if stopped is None:
                    theta_ne, stopped = self._learn_theta(of_theta, temperature, loss, should_stop)
                    reports.append(self._report(temperature, weights_ne, theta_ne, costs))
                self.rounds += 1
                if stopped is not None:
                    break
        return Learned(weight=weight, theta=network.choices.values(), rounds=tuple(reports), stop_reason=stopped)

    def state(self) -> dict[str, Tensor]:
        """Return the training state, from which the next stage continues."""
        tables, layers = self.network.tables.embeddings, self.network.layers.state_dict()
        return {
            **{f"layers.{name}": tensor for name, tensor in layers.items()},
            "tables.weight": tables.weight,
            "tables.adagrad_sum": tables.adagrad_sum,
            "theta": self.network.choices.theta.detach(),
            "progress": torch.tensor([self.passes, self.rounds]),
        }

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state from `state`."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self.passes, self.rounds = state["progress"].tolist()

    def _stage_seed(self) -> int:
        return self.seed * 1_000_003 + self.passes

    def _learn_weights(
        self, optimizer: torch.optim.Optimizer, temperature: float, should_stop: ShouldStop | None
    ) -> tuple[float, StopReason | None]:
        """Train the weights for one pass; return the mean NE, and the reason of an early stop."""
        network, choices, coding = self.network, self.network.choices, self.network.coding
        every, steps = self.schedule.largest_every, itertools.count(1)

        def step(batch: Batch) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            number = next(steps)
            if every and not number % every:  # the largest architecture for all samples
                masks = choices.one_hot(coding.encode(coding.largest(number // every)), len(batch))
            else:
                masks = choices.soft(len(batch), temperature)
            loss = self._loss(batch, masks)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.layers.parameters(), self.schedule.most_gradient)
            optimizer.step()
            return loss

        return self._pass("weights", step, should_stop)

    def _learn_theta(
        self,
        optimizer: torch.optim.Optimizer,
        temperature: float,
        weighed: Callable[[Tensor, Masks], Tensor],
        should_stop: ShouldStop | None,
    ) -> tuple[float, StopReason | None]:
        """Train theta for one pass over the held-out rows; return the mean NE, and the reason of an early stop."""

        def step(batch: Batch) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            masks = self.network.choices.soft(len(batch), temperature)
            loss = self._loss(batch, masks)
            weighed(loss / self._base_entropy, masks).backward()
            optimizer.step()
            return loss

        return self._pass("theta", step, should_stop)

    def _loss(self, batch: Batch, masks: Masks) -> Tensor:
        with autocast(batch.labels.device, self.execution.precision):
            logits = self.network(*batch.inputs, masks)
        return weighted_sum(mean_losses(logits, batch.labels, batch.shares), self._task_weights)

    def _theta_loss(self, weight: float, costs: CostTable | None) -> Callable[[Tensor, Masks], Tensor]:
        """Return the loss of theta as a function of a batch's NE and masks; see `SupernetSchedule.form`."""
        if costs is None or not weight:
            return lambda ne, _: ne
        choices = self.network.choices
        uniform = torch.zeros_like(choices.theta).masked_fill(~choices.exists, -torch.inf).softmax(1)
        with torch.no_grad():  # the expected cost of an architecture with equally likely candidates
            equally_likely = choices.masks(uniform.unsqueeze(0))
            reference = float(expected_cost(self.network.coding, equally_likely, costs))

        def loss(ne: Tensor, masks: Masks) -> Tensor:
            logarithm = (expected_cost(self.network.coding, masks, costs) / reference).log()
            if self.schedule.form == "linear":
                return ne + weight * logarithm.mean()
            return ne * (weight * logarithm).exp().mean()

        return loss

    @torch.no_grad()
    def _report(
        self, temperature: float, weights_ne: float | None, theta_ne: float, costs: CostTable | None
    ) -> RoundReport:
        choices = self.network.choices
        likely = choices.masks(choices.logits().softmax(1).unsqueeze(0))
        return RoundReport(
            temperature=temperature,
            weights_ne=weights_ne,
            theta_ne=theta_ne,
            cost=None if costs is None else float(expected_cost(self.network.coding, likely, costs)),
            probabilities=choices.probabilities(),
        )

    def _pass(
        self, part: Part, step: Callable[[Batch], Tensor], should_stop: ShouldStop | None
    ) -> tuple[float, StopReason | None]:
        """Run `step` on every batch of one pass for `part`; return the mean NE, and the reason of an early stop."""
        self.network.tables.embeddings.is_frozen = part != "weights"
        self.network.layers.requires_grad_(part == "weights")
        self.network.choices.requires_grad_(part == "theta")
        rows = self._rows(part, self.passes)
        self.passes += 1
        total, samples, stopped = torch.zeros((), device=self.execution.device), 0, None
        with prefetch(map(self._loader.read, rows), self.execution) as batches:
            for batch in batches:
                total += step(batch).detach() * len(batch)
                samples += len(batch)
                stopped = should_stop() if should_stop else None
                if stopped is not None:
                    break
        ne = float(total) / max(samples, 1) / self._base_entropy
        if not math.isfinite(ne):
            raise TrainingError("The loss of the super-net became NaN: lower its learning rates.")
        return ne, stopped

    def _rows(self, part: Part, epoch: int) -> Iterator[np.ndarray]:
        """Yield the row numbers of each batch in random order: held-out rows for `theta`, all others for `weights`."""
        size, left, batches, passes = self._loader.batch_size, np.empty(0, dtype=np.int64), 0, 0
        held, least = self.schedule.held_out_share, self.schedule.theta_steps if part == "theta" else 0
        share = held if part == "theta" else 1 - held
        most = max(least, 1, round(share * self.schedule.most_samples / size))
        while passes == 0 or batches < least:
            for window in shuffled_windows(self._loader.rows, seed=self.seed + (passes << 32), epoch=epoch):
                chosen = held_out(window, held, self.seed) == (part == "theta")
                left = np.concatenate([left, window[chosen]])
                for _ in range(len(left) // size):
                    yield left[:size]
                    left, batches = left[size:], batches + 1
                    if batches == most:
                        return
            passes += 1
            if not batches and not len(left):
                return  # too few rows to hold any out
        if len(left):
            yield left


def held_out(rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return the mask of the rows held out for theta: evenly distributed over the data, the same in every epoch."""
    return (rows + seed % 4096) * GOLDEN_RATIO % 1.0 < share


def _base_entropy(dataset: Dataset) -> float:
    """Return the log loss of always predicting the training part's base rate, the unit of NE."""
    part = dataset.splits["train"]
    rate = part.positives / part.rows
    if not 0 < rate < 1:
        raise RequestError(
            f"All labels in the training part of {dataset.name!r} are equal, so nothing can be learned: give more rows."
        )
    return -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
