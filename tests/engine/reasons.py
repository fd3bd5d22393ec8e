"""A reason to stop, for tests in which it does not matter which, and a clock that a test moves."""

from shunter.engine.stopping import RunClock, StopKind, StopLimit, StopReason

ENOUGH = StopReason(StopKind.LIMIT, StopLimit.TIME, {"hours": 1.0})


class HandClock(RunClock):
    """Clock of a command that stands still unless the test moves it.

    Args:
        before: Seconds before the clock was made.
        spans: Seconds that spans have used already; they are part of the command.
    """

    def __init__(self, before: float = 0.0, **spans: float) -> None:
        self.now = 0.0
        super().__init__(before, lambda: self.now)
        for span, seconds in spans.items():
            with self.counting(span):
                self.now += seconds
