"""A reason to stop, for tests in which it does not matter which."""

from shunter.engine.stopping import StopKind, StopLimit, StopReason

ENOUGH = StopReason(StopKind.LIMIT, StopLimit.TIME, {"hours": 1.0})
