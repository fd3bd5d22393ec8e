"""Replay of Zeus' recorded trainings: which batch size and power cap to take, run after run, and what was lost.

Data: You, Chung and Chowdhury, "Zeus", NSDI 2023, their tables of time and power per epoch (by GPU, batch size, cap)
and of epochs to a target metric (by batch size and seed). Targets, longest trainings and default batch sizes are those
of the authors' trace-driven example. A game is a workload on a GPU, or on a choice of both, under one objective:
seconds, joules, or money (the hourly price of the GPU with its host, so that on one GPU money goes with time). It is
played in recurrences, each one recorded run: the strategy names GPU, batch size and cap and a spending at which it
would stop; one recorded seed is drawn; what it took is told, and whether the target was reached. A run that misses the
target costs what it spent until it was stopped, or until the longest training, and counts as a recurrence.

The first run of a batch size may measure all caps in slices of its first epoch, as Zeus does; that epoch then costs the
mean over the caps, and the rest runs at the best. The regret of a recurrence is the expected spending of what was
chosen, plus the optimum once more for the share of seeds that miss (the run has to be repeated; after an abandoned
exploration it goes on at the best known, which counts as what that takes), over the optimum, less 1. The optimum is the
least expected spending of the configurations at which every recorded seed reaches the target. Cumulative regret adds
what was really spent, slices and misses included, over 15 recurrences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from shunter.hardware.catalogue.rows import load_catalogue

Objective = Literal["time", "energy", "cost"]
OBJECTIVES: tuple[Objective, ...] = ("time", "energy", "cost")
GPUS = ("V100", "P100")  # the newer first: the one a user takes who does not compare
# US dollars an hour with host, Google Cloud on demand as used by Gavel (OSDI 2020): one source for both.
PRICE_PER_HOUR = {"V100": 2.85, "P100": 1.68, "K80": 0.52}
DEFAULT_PRICE = 1.0  # of a GPU whose price is not known, such as an A40
ANY_SAMPLES = 100_000  # of a job whose data set is not known: it only says how long a step is


@dataclass(frozen=True)
class Job:
    """A workload with its target: the metric to reach, the most epochs, and the batch size a user starts from.

    The samples of an epoch, which only say how long a step is, are those of the data sets' own descriptions.
    """

    dataset: str
    optimizer: str
    target_metric: float
    max_epochs: int
    default_batch_size: int
    samples: int


JOBS = {
    "NCF": Job("movielens-1m", "adam", 0.41, 100, 1024, 4_970_845),
    "ShuffleNet": Job("cifar100", "adadelta", 0.6, 100, 1024, 50_000),
    "ResNet-50": Job("imagenet", "adadelta", 0.65, 100, 256, 1_281_167),
    "DeepSpeech2": Job("librispeech", "adamw", 40.0, 16, 256, 281_241),
    "BERT SQuAD": Job("squad", "adamw", 84.0, 6, 32, 88_524),
    "BERT Sentiment140": Job("sentiment140", "adamw", 0.84, 10, 128, 1_600_000),
}


@dataclass(frozen=True, order=True)
class Arm:
    """What is chosen once for a whole run; the cap comes beside it."""

    gpu: str
    batch_size: int


@dataclass(frozen=True)
class Menu:
    """All that a strategy knows before the first run.

    Attributes:
        arms: GPUs and batch sizes on offer, and for each its caps in watts, the highest last.
        default: Arm where a user would start; it is known to reach the target.
    """

    arms: Mapping[Arm, tuple[int, ...]]
    default: Arm


@dataclass(frozen=True)
class Order:
    """What a strategy asks for.

    Attributes:
        arm: GPU and batch size.
        cap: Power limit in watts; None measures all caps in the first epoch and takes the best.
        stop: Spending at which the run ends.
        whole_epochs: Whether it can only end between two epochs, so that it ends before one that it cannot pay for.
    """

    arm: Arm
    cap: int | None = None
    stop: float = float("inf")
    whole_epochs: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a run told.

    Attributes:
        arm: Arm of the run.
        spent: Spending in the objective's unit, slices included; 0 when it could not pay for one epoch.
        epochs: Epochs of the run, a part of one among them where the run was stopped within it.
        reached: Whether the target was reached.
        epoch_costs: Per cap, of the caps that were measured.
    """

    arm: Arm
    spent: float
    epochs: float
    reached: bool
    epoch_costs: Mapping[int, float]


@dataclass(frozen=True)
class Game:
    """A workload, its GPUs and an objective, with all that was recorded; strategies never see it.

    Attributes:
        name: For tables.
        objective: Quantity that is spent.
        epoch_costs: Cost of an epoch, by arm and cap.
        epochs: Epochs to the target by batch size, one for each recorded seed; NaN where it was missed.
        max_epochs: Most epochs of a run.
        menu: Menu that strategies are told.
        gpus: GPUs on offer.
        samples: Samples of an epoch.
        measured: Seconds of an epoch and mean watts, by arm and cap.
        price_per_hour: Price of each GPU.
    """

    name: str
    objective: Objective
    epoch_costs: Mapping[Arm, Mapping[int, float]]
    epochs: Mapping[int, np.ndarray]
    max_epochs: int
    menu: Menu
    gpus: tuple[str, ...] = ()
    samples: int = 0
    measured: Mapping[tuple[Arm, int], tuple[float, float]] = field(default_factory=dict)
    price_per_hour: Mapping[str, float] = field(default_factory=dict)

    def caps(self, gpu: str) -> list[int]:
        """Caps that were recorded on a GPU, the highest last."""
        return sorted({cap for arm, cap in self.measured if arm.gpu == gpu})

    def recorded(self, arm: Arm, cap: float | None) -> tuple[float, float] | None:
        """Seconds of an epoch and mean watts; None where it was never run."""
        return self.measured.get((arm, self.caps(arm.gpu)[-1] if cap is None else round(cap)))

    def rate(self, arm: Arm, watts: float) -> float:
        """What a second takes of the objective."""
        return {"time": 1.0, "energy": watts, "cost": self.price_per_hour[arm.gpu] / 3600}[self.objective]

    @cached_property
    def optimum(self) -> tuple[Arm, int, float]:
        """Arm, cap and expected spending of the best configuration at which all seeds reach the target.

        Raises:
            ValueError: There is none.
        """
        (arm, cap), cost = min(self.expected_costs().items(), key=lambda item: item[1])
        return arm, cap, cost

    def success_probability(self, batch_size: int) -> float:
        """Share of the recorded seeds that reach the target."""
        return float(np.isfinite(self.epochs[batch_size]).mean())

    def expected_costs(self) -> dict[tuple[Arm, int], float]:
        """Mean spending of every configuration at which all seeds reach the target."""
        return {
            (arm, cap): cost * float(self.epochs[arm.batch_size].mean())
            for arm, costs in self.epoch_costs.items()
            if self.success_probability(arm.batch_size) == 1
            for cap, cost in costs.items()
        }

    def play(self, order: Order, measured: bool, random: np.random.Generator) -> Outcome:
        """Run once; `measured` says whether this arm's caps are known from an earlier run."""
        epochs = float(random.choice(self.epochs[order.arm.batch_size]))
        costs = self.epoch_costs[order.arm]
        cap = order.cap if order.cap is not None else min(costs, key=lambda one: costs[one])
        ran, reached = self._length(epochs, costs[cap], order)
        slices = 0.0 if order.cap is not None or measured else float(np.mean(list(costs.values()))) - costs[cap]
        told = costs if order.cap is None else {cap: costs[cap]}
        return Outcome(order.arm, ran * costs[cap] + slices * min(ran, 1.0), ran, reached, told if ran else {})

    def regret(self, order: Order, again: Order | None = None) -> float:
        """Expected loss of an order against the optimum, over the optimum.

        Args:
            order: What is run.
            again: What is run if the target was missed, as after an abandoned exploration; None for the optimum.
        """
        costs = self.epoch_costs[order.arm]
        cost = min(costs.values()) if order.cap is None else costs[order.cap]
        runs = [self._length(epochs, cost, order) for epochs in self.epochs[order.arm.batch_size]]
        spent = np.mean([ran * cost for ran, _ in runs])
        missed = np.mean([not reached for _, reached in runs])
        repeated = 1.0 if again is None else 1 + self.regret(again)
        return float(spent / self.optimum[2] + missed * repeated - 1)

    def _length(self, epochs: float, epoch_cost: float, order: Order) -> tuple[float, bool]:
        """Epochs that a run of `epochs` (NaN: never) comes to, and whether it reaches the target."""
        affordable = order.stop / epoch_cost
        longest = min(float(np.floor(affordable)) if order.whole_epochs else affordable, self.max_epochs)
        return (epochs, True) if epochs <= longest else (longest, False)


def load_games(folder: Path, gpus: Sequence[str] = GPUS, *, default_price: float = DEFAULT_PRICE) -> list[Game]:
    """Every workload on each GPU alone, and on the choice of all of them, under the three objectives.

    Args:
        folder: Folder of the recorded tables: `summary_train.csv`, and `summary_power_GPU.csv` for each GPU.
        gpus: GPUs, the one that a user takes who does not compare first.
        default_price: US dollars an hour of a GPU whose price is not known.
    """
    prices = {gpu: _price(gpu, default_price) for gpu in gpus}
    recorded = _read(folder, gpus)
    choices = [*((gpu,) for gpu in gpus), *([tuple(gpus)] if len(gpus) > 1 else [])]
    games = [
        _game(name, job, choice, objective, recorded=recorded, prices=prices)
        for name, job in jobs_of(recorded).items()
        for choice in choices
        for objective in OBJECTIVES
    ]
    return [game for game in games if game.expected_costs()]  # else there is no optimum to compare with


def jobs_of(recorded: "Recorded") -> dict[str, Job]:
    """The authors' jobs among the recorded ones; tables of other jobs bring their own targets.

    Of a job that the authors do not name the target is the highest one that is reached at more than half of its batch
    sizes, the longest training twice the longest that reached it, and the default the middle batch size.
    """
    runs, _ = recorded
    known = {(job.dataset, job.optimizer): name for name, job in JOBS.items()}
    found: dict[str, Job] = {}
    for dataset, optimizer in dict.fromkeys(zip(runs["dataset"], runs["optimizer"], strict=True)):
        if (dataset, optimizer) in known:
            name = known[dataset, optimizer]
            found[name] = JOBS[name]
        elif dataset not in {job.dataset for job in JOBS.values()}:
            rows = runs.loc[(runs["dataset"] == dataset) & (runs["optimizer"] == optimizer)]
            found[f"{dataset} {optimizer}"] = _own_job(dataset, optimizer, rows)
    return {**{name: found[name] for name in JOBS if name in found}, **found}


def _own_job(dataset: str, optimizer: str, rows: pd.DataFrame) -> Job:
    sizes, targets, epochs = (rows[name].to_numpy(float) for name in ("batch_size", "target_metric", "target_epoch"))
    ran, reached = np.unique(sizes), np.isfinite(epochs)
    often = [goal for goal in np.unique(targets) if len(np.unique(sizes[reached & (targets == goal)])) > len(ran) / 2]
    target = float(max(often))
    longest = 2 * int(epochs[reached & (targets == target)].max())
    return Job(dataset, optimizer, target, longest, int(ran[len(ran) // 2]), samples=ANY_SAMPLES)


def load_game(folder: Path, name: str, gpu: str, objective: Objective, target_metric: float | None = None) -> Game:
    """One workload on one GPU, if need be with another target than the usual one.

    Args:
        folder: Folder of the recorded tables.
        name: Key of `JOBS`.
        gpu: V100 or P100.
        objective: Quantity that is spent.
        target_metric: Metric to reach; the job's own when None.
    """
    job = JOBS[name] if target_metric is None else replace(JOBS[name], target_metric=target_metric)
    return _game(name, job, (gpu,), objective, recorded=_read(folder, (gpu,)), prices={gpu: _price(gpu)})


Recorded = tuple[pd.DataFrame, dict[str, pd.DataFrame]]


def _read(folder: Path, gpus: Sequence[str]) -> Recorded:
    """Epochs to the target, and by GPU time and power of an epoch."""
    power = {gpu: pd.read_csv(folder / f"summary_power_{gpu.lower()}.csv") for gpu in gpus}
    return pd.read_csv(folder / "summary_train.csv"), power


def _game(
    name: str,
    job: Job,
    gpus: Sequence[str],
    objective: Objective,
    *,
    recorded: Recorded,
    prices: Mapping[str, float],
) -> Game:
    epochs, power = recorded
    runs = epochs.loc[
        (epochs["dataset"] == job.dataset)
        & (epochs["optimizer"] == job.optimizer)
        & np.isclose(epochs["target_metric"], job.target_metric)
    ]
    sizes, targets = runs["batch_size"].to_numpy(int), runs["target_epoch"].to_numpy(float)
    by_batch = {int(size): targets[sizes == size] for size in np.unique(sizes)}
    costs: dict[Arm, dict[int, float]] = {}
    measured: dict[tuple[Arm, int], tuple[float, float]] = {}
    for gpu in gpus:
        table = power[gpu]
        table = table.loc[(table["dataset"] == job.dataset) & (table["optimizer"] == job.optimizer)]
        for batch_size, cap, seconds, watts in zip(
            table["batch_size"], table["power_limit"], table["time_per_epoch"], table["average_power"], strict=True
        ):
            if batch_size in by_batch:
                amounts = {"time": seconds, "energy": seconds * watts, "cost": seconds * prices[gpu] / 3600}
                costs.setdefault(Arm(gpu, int(batch_size)), {})[int(cap)] = amounts[objective]
                measured[Arm(gpu, int(batch_size)), int(cap)] = (float(seconds), float(watts))
    largest = max(arm.batch_size for arm in costs if arm.gpu == gpus[0])
    menu = Menu(
        arms={arm: tuple(sorted(costs[arm])) for arm in sorted(costs)},
        default=Arm(gpus[0], min(job.default_batch_size, largest)),
    )
    return Game(
        f"{name} on {' or '.join(gpus)}",
        objective,
        costs,
        by_batch,
        job.max_epochs,
        menu,
        gpus=tuple(gpus),
        samples=job.samples,
        measured=measured,
        price_per_hour={gpu: prices[gpu] for gpu in gpus},
    )


def _price(gpu: str, default: float = DEFAULT_PRICE) -> float:
    """US dollars an hour: that of the recorded GPUs, else the catalogue's, else the default."""
    return PRICE_PER_HOUR.get(gpu) or load_catalogue().find_accelerator(gpu).price_per_hour or default
