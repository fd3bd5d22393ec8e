"""Members that fit into the minutes of a search, and a summary of how the minutes were used."""

from collections.abc import Sequence

from shunter.engine.trained_model import FILE, TrainedModel
from shunter.search.minutes import BASELINES, MEMBERS, SLACK, Minutes
from shunter.search.result import Setting, TuneResult
from shunter.search.study.best_models import stored_trial_model
from shunter.tasks.run_context import RunContext


def is_done(run: RunContext, folder: str, setting: Setting | None = None) -> bool:
    """Return True if a member needs no training: it is finished, or a stored trial has trained its setting.

    Args:
        run: Context of the run.
        folder: Name of the member's folder.
        setting: Setting of the member if it is trained with the seed of the search; else None.
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
    """Return how the minutes of a search were used, in a sentence or two; None without a limit.

    Args:
        minutes: Minutes of the search, all used.
        tuned: Result of the search.
        members: Members, trained after the search or taken from its trials.
        at_a_time: Number of parallel trials.
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
        f"{trials} trials{together} {searched / 60:.1f}, {len(members)} members {after / 60:.1f} "
        f"({taken} of them finished trials), all other steps {beside / 60:.1f}. "
        f"Reserved for the steps after training: {ending / 60:.1f} ({minutes.ending_from})."
    )
    return f"{words} The limit ended {cut} of the members' runs, which keep their best epoch." if cut else words
