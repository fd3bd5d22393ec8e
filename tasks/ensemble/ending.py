"""Time of a command: members that fit into the minutes of its search, and the time that its other steps need.

The time outside training runs is estimated from past runs and the pace of this run.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from shunter.engine.data.dataset import Dataset
from shunter.engine.trained_model import FILE, TrainedModel
from shunter.errors import TrackingError
from shunter.requests import TrainRequest
from shunter.search.minutes import BASELINES, MEMBERS, SLACK, Minutes
from shunter.search.result import Setting, TuneResult
from shunter.search.study.best_models import stored_trial_model
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
    """Reserve the end of a time-limited command for the steps after its training runs."""
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
        ended = [step for step in (*steps, END, AFTER_TRAININGS) if step not in MEASURED]
        paces = [_pace(clock.seconds, account) for account in known]
        longest = max(
            pace * sum(account.get(step, 0.0) for step in ended) for pace, account in zip(paces, known, strict=True)
        )
        # Later runs reuse measurements, so steps that measure are counted as in the newest run.
        measured = paces[0] * sum(known[0].get(step, 0.0) for step in steps if step in MEASURED)
        source = f"from {len(known)} earlier run{'s' if len(known) > 1 else ''} on this data"
        return (1 + SPREAD) * (longest + measured) + LATE_SECONDS, source
    beginning = clock.command.attempt_seconds - sum(clock.seconds.get(step, 0.0) for step in MEASURED)
    return SHARE_OF_BEGINNING * beginning, "as long as the steps before training"


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


def is_done(run: RunContext, folder: str, setting: Setting | None = None) -> bool:
    """Return True if a member needs no training: it is finished, or a stored trial has trained its setting.

    `setting` is that of the member if it is trained with the seed of the search, else None.
    """
    is_kept = setting is not None and stored_trial_model(run.search_directory, setting.trial_number) is not None
    return is_kept or (run.directory / MEMBERS / folder / FILE).is_file()


def positions_in_time(run: RunContext, tuned: TuneResult, size: int, most: int, minutes: Minutes) -> list[int]:
    """Return the positions of the members that fit into the minutes.

    Positions follow the rank of the settings. Among the first `size` positions, finished members take no time, and
    other members take `whole_seconds`. Further stored trials follow, up to `most` members.
    """
    settings, left = tuned.winners, minutes.left_seconds
    found: list[int] = []
    for position in range(size):
        turn, number = divmod(position, len(settings))
        setting = settings[number]
        cost = 0.0
        if not is_done(run, str(position), None if turn else setting):
            cost = whole_seconds(setting, tuned.best)
        if cost == 0.0 or (1 - SLACK) * cost <= left:
            left -= cost
            found.append(position)
    others = (place for place in range(size, len(settings)) if is_done(run, str(place), settings[place]))
    return [*found, *list(others)[: most - len(found)]]


def whole_seconds(setting: Setting, best: Setting) -> float:
    """Return the expected seconds to train a setting to its end: those of the best setting, scaled by step time.

    The result is at least the seconds that the setting's trial took.
    """
    ratio = setting.costs.get("step_seconds", 1.0) / best.costs.get("step_seconds", 1.0)
    known = "step_seconds" in setting.costs and "step_seconds" in best.costs
    return max(setting.seconds, best.seconds * (ratio if known else 1.0))


def minutes_as_text(
    minutes: Minutes, tuned: TuneResult, members: Sequence[TrainedModel], at_a_time: int = 1
) -> str | None:
    """Return how the minutes of a search were used, in a sentence or two; None without a limit."""
    if minutes.most_seconds is None:
        return None
    trials = tuned.complete_trials + tuned.pruned_trials + tuned.failed_trials
    before, after = (minutes.around.get(step, 0.0) for step in (BASELINES, MEMBERS))
    searched = tuned.seconds or 0.0
    taken = sum(one.trial is not None for one in members)
    cut = sum(one.trial is None and not one.stop_reason.is_scheduled for one in members)
    beside, ending = minutes.command_seconds, minutes.ending_seconds
    together = f", {at_a_time} at a time," if at_a_time > 1 else ""
    used = before + searched + after + beside
    words = (
        f"{used / 60:.1f} of {minutes.most_seconds / 60:.4g} minutes: baselines {before / 60:.1f}, "
        f"{trials} trials{together} {searched / 60:.1f}, {len(members)} members {after / 60:.1f} "
        f"({taken} of them finished trials), all other steps {beside / 60:.1f}. "
        f"Reserved for the steps after training: {ending / 60:.1f} ({minutes.ending_from})."
    )
    return f"{words} The limit ended {cut} of the members' runs, which keep their best epoch." if cut else words
