"""A training that runs moves, through its checkpoint, to a better placement of its cluster that becomes free."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.executors.ray.training import memory_there
from engine.job import Hooks
from hardware.devices.nodes import ClusterNode, free_resources
from hardware.types import Placement

LOOK_SECONDS = 5.0  # between two looks at what is free
# A move costs a start and the steps since the last checkpoint: it has to pay for that many times over.
LEAST_SECONDS_LEFT = 120.0
LEAST_GAIN = 0.1


class BetterFreeError(Exception):
    """A better placement is free; ends a training whose state is saved, and goes no further than who moves it.

    Args:
        placement: The better one.
    """

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement.label)
        self.placement = placement


@dataclass(frozen=True)
class Choice:
    """A placement that keeps every limit.

    Attributes:
        placement: The placement.
        total: What the whole job is expected to take there of what shall be little: hours, kilowatt hours, money.
    """

    placement: Placement
    total: float


class Upgrade:
    """Looks, while a training runs, whether it would be better off elsewhere.

    Args:
        here: Where it runs, and what it takes there.
        others: Where else it may run.
        is_free: Whether a placement could be had at once.
        clock: Seconds.
    """

    def __init__(
        self,
        here: Choice,
        others: Sequence[Choice],
        is_free: Callable[[Placement], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        gains = [(1 - one.total / here.total, one.placement) for one in others if one.total < here.total]
        self._better = sorted(gains, key=lambda one: -one[0])
        self._is_free, self._clock = is_free, clock
        self._looked_at = clock()
        self._first: tuple[float, int] | None = None
        self._seconds_left = self._share_left = 0.0

    def watching(self, hooks: Hooks) -> Hooks:
        """The hooks of the training, with a look now and then; they raise `BetterFreeError`."""
        if not self._better:
            return hooks

        def on_step(done: int, total: int) -> None:
            self._note(done, total)
            if hooks.on_step:
                hooks.on_step(done, total)

        def should_stop() -> str | None:
            self._look()
            return hooks.should_stop() if hooks.should_stop else None

        return replace(hooks, on_step=on_step, should_stop=should_stop)

    def _note(self, done: int, total: int) -> None:
        """How long its longest schedule still takes, by the steps seen here."""
        now = self._clock()
        if self._first is None:
            self._first = now, done
        began, first = self._first
        if done > first:
            self._seconds_left = (now - began) / (done - first) * (total - done)
        self._share_left = (total - done) / total if total else 0.0

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        if self._seconds_left < LEAST_SECONDS_LEFT:
            return
        for gain, placement in self._better:
            if gain * self._share_left >= LEAST_GAIN and self._is_free(placement):
                raise BetterFreeError(placement)


def is_free_on(node: ClusterNode, placement: Placement, memory_bytes: int = 0) -> bool:
    """Whether Ray has at this moment what a training takes there."""
    free = free_resources().get(node.node_id, {})
    cores = min(float(placement.threads), node.resources.get("CPU", 0.0))
    if free.get("memory", 0.0) < memory_there(node, memory_bytes):
        return False
    return free.get("CPU", 0.0) >= cores and free.get("GPU", 0.0) >= float(placement.device.startswith("cuda"))
