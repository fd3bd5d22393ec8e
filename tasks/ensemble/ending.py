"""What the end of a command is foreseen to take, from the ensemble to the report, so that its minutes can hold."""

from contextlib import suppress

from shunter.errors import TrackingError
from shunter.search.minutes import Minutes
from shunter.tasks.run_context import RunContext
from shunter.tasks.step_clock import StepClock
from shunter.tracking.convention import read_account
from shunter.tracking.history import read_runs

STEPS = ("ensemble", "card", "register", "report")  # of `shunter.flows.train`, behind the members
MEASURED = "profile"
LATEST, LOOKED_AT = 3, 50  # runs that tell, and the newest among which they are looked for
# Without such a run: of what passed before the first training, which grows with the data and on a slow machine as the
# end does, but for the measurement of the machine, which it knows but once. In the six runs of
# `benchmarks/results/overhead.json`, and in three of `auto` on Frappe and MovieLens-1M, the end took .15 to .93 of it.
SHARE_OF_BEGINNING = 1.0


def set_ending_aside(minutes: Minutes, run: RunContext, clock: StepClock) -> None:
    """Leave the end of the minutes to what the longest end of the latest runs on this data took.

    Without such a run it is as much as the beginning took, the measurement of the machine left out.

    Args:
        minutes: Of the command, before anything is trained.
        run: The training.
        clock: What the beginning took.
    """
    if minutes.most_seconds is None:
        return
    known = _past_endings(run)
    if known:
        minutes.set_aside(max(known), f"by {len(known)} earlier run{'s' if len(known) > 1 else ''} on this data")
    else:
        beginning = clock.command.attempt_seconds - clock.seconds.get(MEASURED, 0.0)
        minutes.set_aside(SHARE_OF_BEGINNING * beginning, "as much as the beginning took")


def _past_endings(run: RunContext) -> list[float]:
    """Seconds, the newest first; of this data and model, `auto` too."""
    wanted = {"data.fingerprint": run.dataset.fingerprint, "request.model": run.request.model}
    accounts = []
    with suppress(TrackingError):  # the store may be away
        runs = [past for past in read_runs(("train",), limit=LOOKED_AT) if past.status == "FINISHED"]
        accounts = [read_account(past.metrics) for past in runs if wanted.items() <= past.params.items()]
    return [sum(account[step] for step in STEPS) for account in accounts if set(STEPS) <= account.keys()][:LATEST]
