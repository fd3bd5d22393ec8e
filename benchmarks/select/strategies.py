"""Rivals in the recorded games of `zeus.py`: Zeus as it is described, and the plain ones."""

from abc import ABC, abstractmethod

import numpy as np

from benchmarks.select.zeus import Arm, Menu, Order, Outcome

STOP = 2.0  # A run is stopped when it has spent this many times the cheapest one that reached the target.


class Player(ABC):
    """Chooses run after run from what the menu and its own outcomes tell; made anew for each game.

    Args:
        menu: Everything on offer.
        random: Generator of everything it draws.
    """

    def __init__(self, menu: Menu, random: np.random.Generator) -> None:
        self.menu = menu
        self.random = random
        self.outcomes: list[Outcome] = []

    @abstractmethod
    def choose(self) -> Order:
        """What to run next."""

    def observe(self, outcome: Outcome) -> None:
        """Be told how it went."""
        self.outcomes.append(outcome)

    @property
    def cheapest(self) -> float:
        """Least that a run spent which reached the target."""
        return min((one.spent for one in self.outcomes if one.reached), default=float("inf"))


class Default(Player):
    """What the user would run: her batch size at the highest cap."""

    def choose(self) -> Order:
        """The same every time."""
        return Order(self.menu.default, max(self.menu.arms[self.menu.default]))


class Random(Player):
    """Any arm at any cap, after the default; a run is stopped like Shunter's."""

    def choose(self) -> Order:
        """Drawn evenly."""
        if not self.outcomes:
            return Order(self.menu.default, max(self.menu.arms[self.menu.default]))
        arms = list(self.menu.arms)
        arm = arms[self.random.integers(len(arms))]
        return Order(arm, int(self.random.choice(self.menu.arms[arm])), STOP * self.cheapest)


class Grid(Player):
    """The default, then each other arm once, its caps measured on the way; from then on the cheapest.

    A run is stopped like Shunter's.
    """

    def choose(self) -> Order:
        """The next of the grid, or the best after it."""
        arms = [self.menu.default, *(arm for arm in self.menu.arms if arm != self.menu.default)]
        if len(self.outcomes) < len(arms):
            return Order(arms[len(self.outcomes)], stop=STOP * self.cheapest)
        spent: dict[Arm, list[float]] = {}
        for one in self.outcomes:
            spent.setdefault(one.arm, []).append(one.spent if one.reached else float("inf"))
        return Order(min(spent, key=lambda arm: float(np.mean(spent[arm]))), stop=STOP * self.cheapest)


class Zeus(Player):
    """Zeus' own strategy on its one type of GPU (NSDI 2023, section 4, and its published simulator).

    From the default batch size downwards, then upwards, until one misses the target; twice, the second time around the
    best of the first and among those that reached it. Then Thompson sampling over those that survived, a normal
    distribution for each with the mean and variance of its costs. A run ends before the epoch that would cross twice
    the least cost so far; one that cannot pay for a single epoch does not start, and counts as a miss.
    """

    def __init__(self, menu: Menu, random: np.random.Generator) -> None:
        super().__init__(menu, random)
        self.survivors = [arm for arm in menu.arms if arm.gpu == menu.default.gpu]
        self.costs: dict[Arm, list[float]] = {}
        self.start, self.rounds = menu.default, 2
        self._begin_round()

    def choose(self) -> Order:
        """Next of the pruning, or a draw."""
        arm = self.queue[0] if self.queue else self._draw()
        return Order(arm, stop=STOP * self.cheapest, whole_epochs=True)

    def observe(self, outcome: Outcome) -> None:
        """Prune, or learn the cost."""
        cost = outcome.spent if outcome.epochs else 100 * STOP * self.cheapest
        super().observe(outcome)
        self.costs.setdefault(outcome.arm, []).append(cost)
        if self.rounds:
            self._prune(outcome, cost)

    def _begin_round(self) -> None:
        place = self.survivors.index(self.start)
        self.queue = [*self.survivors[place::-1], *self.survivors[place + 1 :]]
        self.turn = len(self.survivors[: place + 1])  # how many of the queue still go downwards
        self.good: dict[Arm, float] = {}

    def _prune(self, outcome: Outcome, cost: float) -> None:
        self.queue.pop(0)
        down, self.turn = self.turn > 0, self.turn - 1
        if outcome.reached:
            self.good[outcome.arm] = cost
        elif down:
            self.queue, self.turn = self.queue[max(self.turn, 0) :], 0
        else:
            self.queue = []
        if not self.queue:
            self.rounds -= 1
            if self.good:  # when even the best missed, everybody stays
                self.survivors = sorted(self.good)
                self.start = min(self.good, key=lambda arm: self.good[arm])
            if self.rounds:
                self._begin_round()

    def _draw(self) -> Arm:
        def sample(arm: Arm) -> float:
            costs = self.costs[arm]
            return self.random.normal(np.mean(costs), np.std(costs) / len(costs) ** 0.5)

        return min(self.survivors, key=sample)
