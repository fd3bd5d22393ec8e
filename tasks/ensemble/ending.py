"""Estimate of the time that a command needs outside its training runs, from past runs and the pace of this run."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from shunter.engine.data.dataset import Dataset
from shunter.errors import TrackingError
from shunter.requests import TrainRequest
from shunter.search.minutes import Minutes
from shunter.tasks.run_context import RunContext
from shunter.tasks.step_clock import END, START, StepClock
from shunter.tracking.convention import TRAINING_METRICS, TRIAL_OF_MEMBER, read_account
from shunter.tracking.history import TrackedRun, read_children, read_runs

STEPS = ("ensemble", "card", "register", "report")  # steps of `shunter.flows.train` after the training of the members
UNTRAINED = ("select", *STEPS)  # the same with the choice of the placement, before the first training run
BEGINNING = (START, "ingest", "track")  # first steps, by whose duration the speed of two runs is compared
MEASURED = ("profile", "select")  # steps that measure, which the end does not include
LATEST, LOOKED_AT = 3, 50  # number of past runs that count, and number of newest runs to search for them
# Without a past run, the end is estimated by the time before the first training run, less the measurements. Both grow
# with the data and with a slower machine. In the six runs of `benchmarks/results/overhead.json`, and in three of `auto`
# on Frappe and MovieLens-1M, the end took .15 to .93 of it.
SHARE_OF_BEGINNING = 1.0
SPREAD = 0.1  # share by which an end takes longer than the longest of the latest
LATE_SECONDS = 0.3  # a limit is noticed after a step or a validation
MOST_PACE = 3.0  # largest ratio of the pace of two runs; beyond it, the beginning did other work
AFTER_TRAININGS = "after trainings"  # seconds of an account between its last training run and the next step
TRAINED_SECONDS = TRAINING_METRICS["train_seconds"]


def reserve_ending(minutes: Minutes, run: RunContext, clock: StepClock) -> None:
    """Reserve the end of a time-limited command for the steps after its training runs.

    Args:
        minutes: Minutes of the command, before the first training run.
        run: Context of the run.
        clock: Clock with the seconds of the first steps.
    """
    if minutes.is_limited:
        minutes.reserve_seconds(*expected_ending(run.dataset, run.request, clock))


def expected_ending(
    dataset: Dataset, request: TrainRequest, clock: StepClock, steps: Sequence[str] = STEPS
) -> tuple[float, str]:
    """Return the expected seconds of the steps after the training runs, and the source of the estimate.

    The estimate is the longest end of the latest similar runs. The end of a past run is multiplied by the ratio of this
    run's first steps to those of the past run, at least 1. Without a similar run, the end is assumed to take as long as
    the time before the first training run, without its measurements.

    Args:
        dataset: Data set of the run.
        request: Request of the run.
        clock: Clock with the seconds of the first steps.
        steps: Steps to count in addition to the training runs' end and the end of the process.
    """
    known = _past_runs(dataset, request, steps)
    if known:
        source = f"from {len(known)} earlier run{'s' if len(known) > 1 else ''} on this data"
        return _longest(known, steps, clock.seconds), source
    beginning = clock.command.attempt_seconds - sum(clock.seconds.get(step, 0.0) for step in MEASURED)
    return SHARE_OF_BEGINNING * beginning, "as long as the steps before training"


def _longest(
    known: Sequence[Mapping[str, float]], steps: Sequence[str], now: Mapping[str, float] | None = None
) -> float:
    """Return the seconds of the longest past run for the given steps, the end of training runs and the process end.

    Steps with measurements are counted as in the newest run, because later runs reuse measurements.

    Args:
        known: Seconds by step of past runs, the newest first.
        steps: Steps to count.
        now: Seconds of the first steps of this run, by which its pace is compared; None for the same pace.
    """
    ended = [step for step in (*steps, END, AFTER_TRAININGS) if step not in MEASURED]
    paces = [1.0 if now is None else _pace(now, account) for account in known]
    longest = max(
        pace * sum(account.get(step, 0.0) for step in ended) for pace, account in zip(paces, known, strict=True)
    )
    measured = paces[0] * sum(known[0].get(step, 0.0) for step in steps if step in MEASURED)
    return (1 + SPREAD) * (longest + measured) + LATE_SECONDS


def _pace(now: Mapping[str, float], account: Mapping[str, float]) -> float:
    """Return the seconds of this run's first steps divided by those of a past run, between 1 and `MOST_PACE`."""
    ours, theirs = (sum(one.get(step, 0.0) for step in BEGINNING) for one in (now, account))
    return min(MOST_PACE, max(1.0, ours / theirs)) if theirs > 0 else 1.0


def _past_runs(dataset: Dataset, request: TrainRequest, steps: Sequence[str]) -> list[dict[str, float]]:
    """Return the seconds by step of past runs with this data and requested model, the newest first."""
    wanted = {"data.fingerprint": dataset.fingerprint, "request.model": request.model}
    found: list[dict[str, float]] = []
    with suppress(TrackingError):  # the store may be unreachable
        for past in read_runs(("train",), limit=LOOKED_AT):
            account = read_account(past.metrics)
            is_alike = past.status == "FINISHED" and wanted.items() <= past.params.items()
            if is_alike and set(steps) <= account.keys() and len(found) < LATEST:
                found.append({**account, AFTER_TRAININGS: _after_trainings(past, account)})
    return found


def _after_trainings(run: TrackedRun, account: Mapping[str, float]) -> float:
    """Return the seconds that a run needed after the last steps of trials, search and members.

    A trial is validated and logged after its last step. The first trial also loads libraries, so the shortest time of a
    trial is used. A search is logged after its trials, and a trial that becomes a member is copied and logged.
    """
    trials, members = (read_children(run.run_id, kind) for kind in ("trial", "member"))
    of_a_trial = min((_seconds(one) - one.metrics.get(TRAINED_SECONDS, 0.0) for one in trials), default=0.0)
    of_search = max(0.0, account.get("tune", 0.0) - run.metrics.get("search.seconds", account.get("tune", 0.0)))
    adopted = sum(_seconds(one) for one in members if TRIAL_OF_MEMBER in one.tags)
    return max(0.0, of_a_trial) + of_search + adopted


def _seconds(run: TrackedRun) -> float:
    return 0.0 if run.ended_at is None else run.ended_at - run.started_at
