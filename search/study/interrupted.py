"""Trials that ended with their process: tried again, as often as it takes, as if they had not begun.

An interruption says nothing of a setting, so it is no failure; only where the kernel has ended processes for want of
memory meanwhile is it taken for one, since the same setting would end the next process, too.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.files import sync_directory
from shunter.hardware.devices.memory_kills import memory_kills
from shunter.hardware.devices.process_mark import process_mark

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

FAILURE = "failure"  # attribute of a trial that failed by itself, in contrast to one that was interrupted
OWNER, MEMORY_KILLS = "owner", "memory_kills"
LOST, MOST_LOST = "processes_lost", 3
OUT_OF_MEMORY = "The kernel ended its process, or another one meanwhile, for want of memory."
FIXED = "fixed_params"  # where Optuna keeps the point of a trial that waits


def note_owner(trial: "Trial") -> None:
    """Write down who runs a trial, to know later whether it ended with it, and of what."""
    trial.set_user_attr(OWNER, _this_process())
    trial.set_user_attr(MEMORY_KILLS, memory_kills())


def put_back(file: Path, open_storage: "Callable[[str], RDBStorage]") -> None:
    """Let the trials that a killed process left open wait to begin, each in its place, as if they never had.

    Nothing of an interrupted attempt stays that others would be compared with, and all numbers are those of a search
    that was not interrupted. Optuna takes nothing back, so the studies are written anew beside their file, which they
    replace in one step: a kill meanwhile leaves the former one.

    Args:
        file: SQLite's file of the studies, which nobody else works on; it may not be there yet.
        open_storage: Opens the storage of an address.
    """
    from optuna import get_all_study_names, load_study

    if not file.exists():
        return
    storage = open_storage(f"sqlite:///{file}")
    try:
        studies = [load_study(study_name=name, storage=storage) for name in get_all_study_names(storage)]
        if not any(map(running_trials, studies)):
            return
        draft = file.with_name(f"{file.name}.draft")
        for left in (draft, draft.with_name(f"{draft.name}-journal")):
            left.unlink(missing_ok=True)
        _write_anew(studies, open_storage(f"sqlite:///{draft}"))
    finally:
        _close(storage)
    draft.replace(file)
    sync_directory(file.parent)


def close_interrupted(study: "Study") -> None:
    """In a storage that others work on: close the trials of processes that are gone, and queue their points anew."""
    for trial in running_trials(study):
        if not _is_alive(trial.user_attrs.get(OWNER)):
            close_and_queue(study, trial)


def close_and_queue(study: "Study", trial: "FrozenTrial") -> None:
    """Close a trial that ended with its process, and queue its point anew, unless the memory was what ended it."""
    from optuna import Trial
    from optuna.trial import TrialState

    if _ran_out_of_memory(trial):
        Trial(study, trial._trial_id).set_user_attr(FAILURE, OUT_OF_MEMORY)
    else:
        study.add_trial(_begun_again(trial))
    study.tell(trial.number, state=TrialState.FAIL)


def try_again(study: "Study", trial: "Trial") -> None:
    """Close a trial whose own process was lost while this one lives, and queue its point anew; it counts how often."""
    from optuna.trial import TrialState

    study.enqueue_trial(trial.params, user_attrs={LOST: trial.user_attrs.get(LOST, 0) + 1})
    study.tell(trial, state=TrialState.FAIL)


def may_try_again(trial: "Trial") -> bool:
    """Whether the processes of a point were not yet lost so often that it is left alone."""
    return trial.user_attrs.get(LOST, 0) < MOST_LOST


def running_trials(study: "Study") -> "list[FrozenTrial]":
    """Trials on their way."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]


def was_interrupted(trial: "FrozenTrial") -> bool:
    """Whether this is an attempt that was closed, and its point queued anew."""
    return trial.state.name == "FAIL" and FAILURE not in trial.user_attrs


def _begun_again(trial: "FrozenTrial") -> "FrozenTrial":
    """What takes the place of a trial: of one that was under way the same point, which waits or has failed.

    Of an attempt that was closed only the number stays.
    """
    from optuna.trial import TrialState, create_trial

    if was_interrupted(trial):
        return create_trial(state=TrialState.FAIL)
    if trial.state.name != "RUNNING":
        return trial
    # The point as it was queued: a kill may have come before all of it was drawn.
    point = trial.system_attrs.get(FIXED) or trial.params
    if not _ran_out_of_memory(trial):
        return create_trial(state=TrialState.WAITING, system_attrs={FIXED: point})
    attributes = {**trial.user_attrs, FAILURE: OUT_OF_MEMORY}
    return create_trial(
        state=TrialState.FAIL, params=trial.params, distributions=trial.distributions, user_attrs=attributes
    )


def _write_anew(studies: "list[Study]", storage: "RDBStorage") -> None:
    """Write the same studies, in which what was under way has not begun."""
    from optuna import create_study

    try:
        for study in studies:
            anew = create_study(storage=storage, study_name=study.study_name, directions=study.directions)
            anew.add_trials([_begun_again(trial) for trial in study.get_trials(deepcopy=False)])
    finally:
        _close(storage)


def _close(storage: "RDBStorage") -> None:
    """Give its file free."""
    storage.remove_session()
    storage.engine.dispose()


def _ran_out_of_memory(trial: "FrozenTrial") -> bool:
    before, now = trial.user_attrs.get(MEMORY_KILLS), memory_kills()
    return before is not None and now is not None and now > before


def _this_process() -> list[Any]:
    return [socket.gethostname(), os.getpid(), process_mark(os.getpid())]


def _is_alive(owner: list[Any] | None) -> bool:
    """Whether the process that runs a trial lives; of another machine's nobody knows, so it is left alone."""
    if owner is None:
        return False
    host, process, mark = owner
    return host != socket.gethostname() or process_mark(process) == mark
