"""Reservation of accelerators for a flow, which logs its waiting."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

from prefect import get_run_logger
from prefect.exceptions import MissingContextError
from prefect.runtime import flow_run

from shunter.errors import ShunterError
from shunter.hardware.leases import leases_of_others
from shunter.hardware.reservation import Accept, Reservation, reserve, trainings_together, wanted
from shunter.hardware.types import HardwareProfile, Placement
from shunter.model_families import is_ranking
from shunter.planner.decide import Decision
from shunter.planner.redecide import is_better_now
from shunter.registry import Entry, Registry
from shunter.requests import TrainRequest
from shunter.tasks.progress_line import print_above_line
from shunter.tasks.training_plans import processes_of

LONGEST_HOURS = 24.0 * 365  # longest reservation, because dates are limited
# Functions that let a running training job move to a better placement. `machine` takes the reservation and the estimate
# and returns a `shunter.engine.executors.role.ComputeTarget`; `cluster` is a
# `shunter.extensions.distributed.executors.ray.slots.SelectUpgrade`.
MOVES = Registry(
    "move of running training runs",
    {
        "machine": Entry(target="shunter.extensions.fleet.better:DeviceUpgrade"),
        "cluster": Entry(target="shunter.extensions.fleet.better:select_upgrade"),
    },
    group="shunter.moves",
)
Estimate = Callable[[], Decision]
"""Function that predicts all placements of this machine without measurements."""


def installed_move(name: str) -> Any:
    """Return the entry of `MOVES` that moves running training jobs; None if its extension is not installed."""
    return MOVES.load(name) if name in MOVES.names else None


@contextmanager
def reserve_for_flow(
    profiles: Sequence[HardwareProfile],
    *,
    together: int = 1,
    decision: Decision | None = None,
    estimate: Estimate | None = None,
    priority: int = 0,
) -> Iterator[Reservation]:
    """Reserve the accelerators that a flow may train on while the block runs; wait for those in use, if necessary.

    Args:
        profiles: Accelerators of this machine; empty if the nodes of a cluster train instead.
        together: Number of processes or trials that train at the same time.
        decision: Decision of an interrupted attempt; the accelerator and cores of its placement are then enough.
        estimate: Returns a decision without measurements, by which the flow starts early if waiting for busy
            accelerators gains nothing; None waits for all accelerators.
        priority: Priority among the flows that wait.
    """
    chosen = decision.placement if decision and profiles else None
    groups = wanted(profiles, processes=together, chosen=chosen)
    accept = None
    if together == 1 and chosen is not None:
        accept = partial(_is_held, placement=chosen)
    elif together == 1 and estimate is not None:
        accept = _accepting(cache(estimate))
    with reserve(*groups, holder=holder(), report=announce, accept=accept, priority=priority) as held:
        yield held


def _accepting(estimate: Estimate) -> Accept:
    """Return a function that decides whether the reserved accelerators are enough; False if their end is unknown."""

    def accept(held: Reservation) -> bool:
        try:
            decision = estimate()
        except ShunterError:
            return False
        names = {row.candidate.placement.accelerator for row in decision.table if row.candidate.is_here}
        ends = {name: [lease.until for lease in leases_of_others(name)] for name in names}
        if any(None in found for found in ends.values()):
            return False
        # A lease that is late by some hours is expected to last as many hours again.
        now = datetime.now(UTC)
        seconds = {name: [abs((end - now).total_seconds()) for end in found if end] for name, found in ends.items()}
        waits = {name: max(found) / 3600 for name, found in seconds.items() if found}
        return is_better_now(decision, partial(_is_held, held), waits)

    return accept


def holds_all(held: Reservation, profiles: Sequence[HardwareProfile]) -> bool:
    """Return True if all cores and an accelerator of each model are reserved, so nothing better can become free."""
    models = {profile.accelerator.model for profile in profiles}
    here = held.of(profiles)
    cores = {one.accelerator.name: one.accelerator.cores for one in profiles}
    return {one.accelerator.model for one in here} == models and all(
        one.accelerator.cores == cores[one.accelerator.name] for one in here
    )


def _is_held(held: Reservation, placement: Placement) -> bool:
    return placement.accelerator in held.names and (placement.device != "cpu" or placement.threads <= held.cores)


def keep_chosen(
    held: Reservation, decision: Decision, request: TrainRequest, profiles: Sequence[HardwareProfile]
) -> None:
    """Release the accelerators and cores that the chosen placement does not use; record its memory and time.

    A single training run of a click model shares the processor with other flows: it keeps as many cores as it has
    threads. Training runs in several processes, parallel trials and graph models keep all cores.
    """
    together = trainings_together(request, profiles, processes_of(request))
    shares = together == 1 and request.search.trials_at_a_time == 1 and not is_ranking(request.model)
    held.keep(
        decision.placement,
        together,
        memory_bytes=decision.prediction.memory_bytes if shares else 0,
        until=datetime.now(UTC) + timedelta(hours=min(decision.hours, LONGEST_HOURS)),
    )


def holder() -> str:
    """Return the name of the flow run, as shown to other waiting flows."""
    return flow_run.get_name() or flow_run.get_flow_name() or "a flow"


def announce(sentence: str) -> None:
    """Print a sentence, and write it to the log of the flow run if there is one."""
    print_above_line(sentence)
    try:
        get_run_logger().info(sentence)
    except MissingContextError:
        return


@contextmanager
def reserve_if_free(profiles: Sequence[HardwareProfile]) -> Iterator[bool]:
    """Reserve accelerators for measurements without waiting; yield False if a training run uses one of them."""
    reservation = Reservation()
    used = reservation.take_if_free(wanted(profiles), holder())
    if used:
        get_run_logger().warning("%s: step times are predicted, not measured.", used)
    try:
        yield not used
    finally:
        reservation.release()
