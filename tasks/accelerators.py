"""Accelerators held for a flow, which says in its log what it waits for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prefect import get_run_logger
from prefect.exceptions import MissingContextError
from prefect.runtime import flow_run

from hardware.reservation import Reservation, reserve, say, wanted
from hardware.types import HardwareProfile
from planner.decide import Decision


@contextmanager
def hold(
    profiles: Sequence[HardwareProfile], *, together: int = 1, decision: Decision | None = None
) -> Iterator[Reservation]:
    """Hold what a flow may train on for the length of the block; waits for what others use.

    Args:
        profiles: Accelerators of this machine; none where others train instead.
        together: Number of processes or trials that train at the same time.
        decision: Decision of an interrupted attempt; then what its placement uses is enough.
    """
    chosen = decision.placement if decision and profiles else None
    groups = wanted(profiles, processes=together, chosen=chosen)
    with reserve(*groups, holder=holder(), tell=tell) as held:
        yield held


def holder() -> str:
    """Name of the flow run, for the others who wait."""
    return flow_run.get_name() or flow_run.get_flow_name() or "a flow"


def tell(sentence: str) -> None:
    """Print a sentence, and keep it in the log of the flow run where there is one."""
    say(sentence)
    try:
        get_run_logger().info(sentence)
    except MissingContextError:
        return


@contextmanager
def free(profiles: Sequence[HardwareProfile]) -> Iterator[bool]:
    """Hold accelerators to measure on; False where a training uses them: a question is answered without waiting."""
    reservation = Reservation()
    used = reservation.take_if_free(wanted(profiles), holder())
    if used:
        get_run_logger().warning("%s: steps are predicted, none is measured.", used)
    try:
        yield not used
    finally:
        reservation.release()
