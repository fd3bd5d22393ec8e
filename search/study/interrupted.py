"""Trials whose process died: each trial is run again from the start.

An interruption is not a failure of the trial's setting. Exception: if the kernel has killed processes for lack of
memory since the trial began, the trial has failed, since the same setting would kill the next process too.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.files import sync_directory
from shunter.hardware.devices.memory_limits import memory_kills
from shunter.hardware.devices.process_mark import process_mark

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

FAILURE = "failure"  # attribute of a trial that failed because of its setting, not because of an interruption
OWNER, MEMORY_KILLS = "owner", "memory_kills"
LOST, MOST_LOST = "processes_lost", 3
OUT_OF_MEMORY = "The kernel ended its process, or another one meanwhile, for want of memory."
PAIR = "pair"  # attribute of a trial that repeats another one; see `shunter.search.study.pair`
FIXED = "fixed_params"  # attribute in which Optuna stores the point of a queued trial


def record_owner(trial: "Trial") -> None:
    """Record the process that runs a trial, so that its death and the cause can be detected later."""
    trial.set_user_attr(OWNER, [socket.gethostname(), os.getpid(), process_mark(os.getpid())])
    trial.set_user_attr(MEMORY_KILLS, memory_kills())


def put_back(file: Path, open_storage: "Callable[[str], RDBStorage]") -> None:
    """Reset trials that a killed process left running, so that they wait in the queue under their old numbers.

    Other trials are then not compared with results of an interrupted attempt, and all trials have the same numbers as
    without the interruption. Optuna cannot reset a trial, so the studies are written to a new file. The new file
    replaces the old file atomically: if the process is killed in between, the old file remains.

    Args:
        file: SQLite file of the studies, which no other process uses; it may not exist yet.
        open_storage: Function that opens the storage at an address.
    """
    from optuna import create_study, get_all_study_names, load_study

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
        anew = open_storage(f"sqlite:///{draft}")
        try:
            for study in studies:
                copy = create_study(storage=anew, study_name=study.study_name, directions=study.directions)
                copy.add_trials([_begun_again(trial) for trial in study.get_trials(deepcopy=False)])
        finally:
            _close(anew)
    finally:
        _close(storage)
    draft.replace(file)
    sync_directory(file.parent)


def close_interrupted(study: "Study") -> None:
    """Close the trials of dead processes in a shared storage, and queue their points again."""
    for trial in running_trials(study):
        host, process, mark = trial.user_attrs.get(OWNER) or (None, 0, None)
        is_elsewhere = host not in (None, socket.gethostname())  # a process on another machine counts as alive
        if not is_elsewhere and (host is None or process_mark(process) != mark):
            close_and_queue(study, trial)


def close_and_queue(study: "Study", trial: "FrozenTrial") -> None:
    """Close a trial whose process died, and queue its point again unless the process ran out of memory."""
    from optuna import Trial
    from optuna.trial import TrialState

    if _ran_out_of_memory(trial):
        Trial(study, trial._trial_id).set_user_attr(FAILURE, OUT_OF_MEMORY)
    else:
        study.add_trial(_begun_again(trial))
    study.tell(trial.number, state=TrialState.FAIL)


def try_again(study: "Study", trial: "Trial") -> None:
    """Close a trial whose worker process died, queue its point again, and count the lost processes of the point."""
    from optuna.trial import TrialState

    study.enqueue_trial(trial.params, user_attrs={**_pair(trial), LOST: trial.user_attrs.get(LOST, 0) + 1})
    study.tell(trial, state=TrialState.FAIL)


def may_try_again(trial: "Trial") -> bool:
    """Return True if fewer than `MOST_LOST` processes of the trial's point have died so far."""
    return trial.user_attrs.get(LOST, 0) < MOST_LOST


def running_trials(study: "Study") -> "list[FrozenTrial]":
    """Return the trials that are running."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]


def was_interrupted(trial: "FrozenTrial") -> bool:
    """Return True if the trial is an attempt that was closed after its process died."""
    return trial.state.name == "FAIL" and FAILURE not in trial.user_attrs


def _begun_again(trial: "FrozenTrial") -> "FrozenTrial":
    """Return the trial for the new file: queued if it was running, empty if it is a closed, interrupted attempt."""
    from optuna.trial import TrialState, create_trial

    if was_interrupted(trial):
        return create_trial(state=TrialState.FAIL)
    if trial.state.name != "RUNNING":
        return trial
    # Use the point of the queue: the process may have been killed before all parameters were recorded.
    point = trial.system_attrs.get(FIXED) or trial.params
    if not _ran_out_of_memory(trial):
        return create_trial(state=TrialState.WAITING, system_attrs={FIXED: point}, user_attrs=_pair(trial))
    attributes = {**trial.user_attrs, FAILURE: OUT_OF_MEMORY}
    return create_trial(
        state=TrialState.FAIL, params=trial.params, distributions=trial.distributions, user_attrs=attributes
    )


def _pair(trial: "Trial | FrozenTrial") -> dict[str, Any]:
    """Return the attribute of an exploring trial that names the trial it repeats; empty for any other trial."""
    return {name: value for name, value in trial.user_attrs.items() if name == PAIR}


def _close(storage: "RDBStorage") -> None:
    """Release the file of a storage."""
    storage.remove_session()
    storage.engine.dispose()


def _ran_out_of_memory(trial: "FrozenTrial") -> bool:
    before, now = trial.user_attrs.get(MEMORY_KILLS), memory_kills()
    return before is not None and now is not None and now > before
