"""Estimate of the time that a command needs after its trainings, from the ensemble to the report."""

from collections.abc import Sequence
from contextlib import suppress

from shunter.engine.data.dataset import Dataset
from shunter.errors import TrackingError
from shunter.requests import TrainRequest
from shunter.search.minutes import Minutes
from shunter.tasks.run_context import RunContext
from shunter.tasks.step_clock import END, StepClock
from shunter.tracking.convention import read_account
from shunter.tracking.history import read_runs

STEPS = ("ensemble", "card", "register", "report")  # steps of `shunter.flows.train` after the training of the members
UNTRAINED = ("select", *STEPS)  # the same with the choice of the placement, before the first training
MEASURED = ("profile", "select")  # steps that measure, of which the end has none
LATEST, LOOKED_AT = 3, 50  # number of past runs that count, and number of newest runs to search for them
# Without a past run, the end is estimated by the time before the first training, less the measurements. Both grow with
# the data and with a slower machine. In the six runs of `benchmarks/results/overhead.json`, and in three of `auto` on
# Frappe and MovieLens-1M, the end took .15 to .93 of it.
SHARE_OF_BEGINNING = 1.0
# A limit is noticed after a step or a validation: commands that exceeded one on Frappe and Criteo did so by .3 to 1.3
# seconds (`benchmarks/results/ten_runs.json`, measured without this).
LATE_SECONDS = 1.0


def reserve_ending(minutes: Minutes, run: RunContext, clock: StepClock) -> None:
    """Reserve the last part of a limited command for its end.

    Args:
        minutes: Minutes of the command, before the first training.
        run: Context of the run.
        clock: Clock with the seconds of the first steps.
    """
    if minutes.is_limited:
        minutes.reserve_seconds(*expected_ending(run.dataset, run.request, clock))


def expected_ending(
    dataset: Dataset, request: TrainRequest, clock: StepClock, steps: Sequence[str] = STEPS
) -> tuple[float, str]:
    """Return the expected seconds of the end of the command, and their source: the longest of the latest similar runs.

    Without such a run, the end takes as long as the beginning without its measurements.

    Args:
        dataset: Data set of the run.
        request: Request of the run.
        clock: Clock with the seconds of the first steps.
        steps: Steps that count beside the end of the process.
    """
    known = _past_endings(dataset, request, steps)
    if known:
        return max(known) + LATE_SECONDS, f"by {len(known)} earlier run{'s' if len(known) > 1 else ''} on this data"
    beginning = clock.command.attempt_seconds - sum(clock.seconds.get(step, 0.0) for step in MEASURED)
    return SHARE_OF_BEGINNING * beginning, "as much as the beginning took"


def _past_endings(dataset: Dataset, request: TrainRequest, steps: Sequence[str]) -> list[float]:
    """Return the seconds that past runs with this data and requested model needed for the end, the newest first."""
    wanted = {"data.fingerprint": dataset.fingerprint, "request.model": request.model}
    accounts = []
    with suppress(TrackingError):  # the store may be unreachable
        runs = [past for past in read_runs(("train",), limit=LOOKED_AT) if past.status == "FINISHED"]
        accounts = [read_account(past.metrics) for past in runs if wanted.items() <= past.params.items()]
    whole = [account for account in accounts if set(steps) <= account.keys()]
    return [sum(account.get(step, 0.0) for step in (*steps, END)) for account in whole][:LATEST]
