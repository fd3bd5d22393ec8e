"""Estimate of the time that a command needs after its trainings, from the ensemble to the report."""

from contextlib import suppress

from shunter.errors import TrackingError
from shunter.search.minutes import Minutes
from shunter.tasks.run_context import RunContext
from shunter.tasks.step_clock import StepClock
from shunter.tracking.convention import read_account
from shunter.tracking.history import read_runs

STEPS = ("ensemble", "card", "register", "report")  # steps of `shunter.flows.train` after the training of the members
MEASURED = "profile"
LATEST, LOOKED_AT = 3, 50  # number of past runs that count, and number of newest runs to search for them
# Without a past run, the end is estimated by the time before the first training, less the hardware profile, which is
# measured once only. Both grow with the data and with a slower machine. In the six runs of
# `benchmarks/results/overhead.json`, and in three of `auto` on Frappe and MovieLens-1M, the end took .15 to .93 of it.
SHARE_OF_BEGINNING = 1.0


def set_ending_aside(minutes: Minutes, run: RunContext, clock: StepClock) -> None:
    """Reserve the last part of the minutes for the end of the command: the longest end of the latest runs on this data.

    Without such a run, reserve as much time as the beginning took without the hardware profile.

    Args:
        minutes: Minutes of the command, before the first training.
        run: Context of the run.
        clock: Clock with the seconds of the first steps.
    """
    if not minutes.is_limited:
        return
    known = _past_endings(run)
    if known:
        minutes.set_aside(max(known), f"by {len(known)} earlier run{'s' if len(known) > 1 else ''} on this data")
    else:
        beginning = clock.command.attempt_seconds - clock.seconds.get(MEASURED, 0.0)
        minutes.set_aside(SHARE_OF_BEGINNING * beginning, "as much as the beginning took")


def _past_endings(run: RunContext) -> list[float]:
    """Return the seconds that past runs with this data and requested model needed for the end, the newest first."""
    wanted = {"data.fingerprint": run.dataset.fingerprint, "request.model": run.request.model}
    accounts = []
    with suppress(TrackingError):  # the store may be unreachable
        runs = [past for past in read_runs(("train",), limit=LOOKED_AT) if past.status == "FINISHED"]
        accounts = [read_account(past.metrics) for past in runs if wanted.items() <= past.params.items()]
    return [sum(account[step] for step in STEPS) for account in accounts if set(STEPS) <= account.keys()][:LATEST]
