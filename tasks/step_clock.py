"""How long each step of a flow takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class StepClock:
    """Wall-clock seconds of each step of this attempt; reports on stderr when one is done."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block under `name`."""
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds  # a step is taken again after an exploration
        self._console.print(f"{name:<10}{seconds:7.1f} s", style="dim")
