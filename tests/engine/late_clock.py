"""A stand-in for the clock of a GPU that is many steps behind its host."""

from collections.abc import Iterator

from shunter.engine.loop.step_clock import HostClock, StepSeconds


class LateClock(HostClock):
    """Tells what a step took only when it is waited for."""

    def finished(self, *, wait: bool = False) -> Iterator[StepSeconds]:
        """None before."""
        return super().finished(wait=wait) if wait else iter(())
