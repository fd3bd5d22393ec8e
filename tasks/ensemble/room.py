"""Which members a search's minutes have room for, and where these minutes went."""

from collections.abc import Sequence

from shunter.engine.trained_model import FILE, TrainedModel
from shunter.search.minutes import BASELINES, MEMBERS, SLACK, Minutes
from shunter.search.result import Setting, TuneResult
from shunter.search.study.kept import kept_model
from shunter.tasks.run_context import RunContext


def is_done(run: RunContext, folder: str, setting: Setting | None = None) -> bool:
    """Whether a member takes no time: it is finished, or a trial of this setting that was kept.

    Args:
        run: The training.
        folder: Name of the member's folder.
        setting: Its setting, where it is trained from the seed of the search.
    """
    is_kept = setting is not None and kept_model(run.search_directory, setting.trial_number) is not None
    return is_kept or (run.directory / MEMBERS / folder / FILE).is_file()


def positions_with_room(run: RunContext, tuned: TuneResult, size: int, most: int, minutes: Minutes) -> list[int]:
    """Positions of the members for which there is room.

    Of the first `size` positions, the settings in the order of their rank, a member that is done takes no time, another
    as long as `whole_seconds` foresees. Further trials that were kept follow, until there are `most`.
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
    """What training a setting to its end is expected to take: what the best one took, for steps of its own length.

    It takes no less than it took already.
    """
    ratio = setting.costs.get("step_seconds", 1.0) / best.costs.get("step_seconds", 1.0)
    known = "step_seconds" in setting.costs and "step_seconds" in best.costs
    return max(setting.seconds, best.seconds * (ratio if known else 1.0))


def minutes_in_words(
    minutes: Minutes, tuned: TuneResult, members: Sequence[TrainedModel], at_a_time: int = 1
) -> str | None:
    """Where the minutes of a search went, in a sentence or two; None where it had none.

    Args:
        minutes: The minutes, all counted.
        tuned: The search.
        members: What was trained or taken over after it.
        at_a_time: Trials that ran at a time.
    """
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
        f"{trials} trials{together} {searched / 60:.1f}, {len(members)} members {after / 60:.1f}, {taken} "
        f"of which trials had trained; start, choice and what lies between {beside / 60:.1f}. "
        f"For the end {ending / 60:.1f} were set aside ({minutes.ending_from})."
    )
    return (
        f"{words} The end of the minutes ended {cut} of their trainings, which keep their best epoch." if cut else words
    )
