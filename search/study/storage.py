"""Storage of the Optuna study of a search, in the run's own folder or in a database that several machines share."""

import contextlib
import errno
import hashlib
import logging
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.database import fault_of, quarantine_database
from shunter.engine.config import SelectBy
from shunter.errors import TrackingError
from shunter.search.protocol import COSTS, Cost, Outcome, Space
from shunter.search.study.interrupted import FAILURE, close_interrupted, put_back, record_owner, running_trials
from shunter.secrets import without_secrets

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import BaseStorage, RDBStorage
    from optuna.trial import FrozenTrial

SQLITE = "sqlite:///"
LOCK_SECONDS = 10.0  # longest wait for a database that another process has locked, in seconds


@contextlib.contextmanager
def storage_errors(storage: str) -> Iterator[None]:
    """Raise every error of a study's storage, whose address the message names, as `TrackingError`."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError, sqlite3.Error, ImportError) as error:
        first: BaseException = error  # the error of the database driver has the shortest message
        while first.__cause__ is not None:
            first = first.__cause__
        reason = str(first).strip().splitlines()[0].rstrip(".")
        raise TrackingError(
            f"The database {without_secrets(storage)} of the search failed ({without_secrets(reason)}): "
            f"{_advice(first)}."
        ) from error


def open_study(
    address: str,
    space: Space,
    *,
    cost: Cost | None = None,
    belongs_to: str = "",
    is_shared: bool = False,
    select_by: SelectBy = "ne",
) -> "Study":
    """Create or resume the study; each combination of space, data and cost has its own study.

    Trials that were interrupted by a kill or Ctrl-C are run again: see `shunter.search.study.interrupted`.

    Args:
        address: Address from `shunter.search.study.address.storage_address`.
        space: Search space.
        cost: Second objective besides NE; None: NE is the only objective.
        belongs_to: Additional text that distinguishes this study from other studies in a shared storage.
        is_shared: Whether other processes may use the study; then only trials of dead processes are closed.
        select_by: Selection metric.

    Raises:
        TrackingError: The storage cannot be opened, is locked or is not a database.
    """
    from optuna import create_study
    from optuna.exceptions import ExperimentalWarning
    from optuna.study import StudyDirection

    logging.getLogger("optuna").setLevel(logging.WARNING)  # otherwise Optuna logs the creation of each study
    by = None if select_by == "ne" else select_by
    identity = "|".join(filter(None, (space.model_dump_json(), cost, belongs_to, by)))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    with storage_errors(address):
        if not is_shared:
            file = Path(address.removeprefix(SQLITE))
            if address.startswith(SQLITE) and (reason := fault_of(file)) is not None:
                quarantine_database(file, reason)
            put_back(file, _open_database)
        study = create_study(
            storage=_open_storage(address),
            study_name=f"tune-{digest}",
            directions=[StudyDirection.MINIMIZE] * (2 if cost else 1),
            load_if_exists=True,
        )
        objective = "1 - validation_auc" if select_by == "auc" else f"validation_{select_by}"
        names = [objective, *([cost] if cost else [])]
        if study.metric_names != names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                study.set_metric_names(names)
        if is_shared:
            close_interrupted(study)
    return study


def record(
    study: "Study", parameters: Mapping[str, Any] | None, attributes: Mapping[str, Any] | None = None
) -> "Trial":
    """Begin a trial at the given point; without `parameters`, begin the next queued trial.

    The trial keeps `attributes` if it is interrupted.
    """
    if parameters is not None:
        study.enqueue_trial(dict(parameters), user_attrs=dict(attributes or {}))
    trial = study.ask()
    record_owner(trial)
    return trial


def has_waiting(study: "Study") -> bool:
    """Return True if an interrupted trial is queued to be run again."""
    return any(trial.state.name == "WAITING" for trial in study.get_trials(deepcopy=False))


def finished_trials(study: "Study") -> "list[FrozenTrial]":
    """Return the finished trials: complete, pruned or failed; an interrupted trial is run again and does not count."""
    return [trial for trial in study.get_trials(deepcopy=False) if has_result(trial) or _failure(trial)]


def begun_trials(study: "Study") -> "list[FrozenTrial]":
    """Return the finished and the running trials."""
    return [*finished_trials(study), *running_trials(study)]


def trials_with_result(study: "Study") -> "list[FrozenTrial]":
    """Return the trials with at least one validation result."""
    return [trial for trial in study.get_trials(deepcopy=False) if has_result(trial)]


def has_result(trial: "FrozenTrial") -> bool:
    """Return True if the trial has at least one validation result."""
    return trial.state.name in {"COMPLETE", "PRUNED"}


def lowest_loss(trial: "FrozenTrial") -> float:
    """Return the lowest `Outcome.loss` of a trial with a result."""
    attributes = trial.user_attrs
    known = attributes.get("selected", attributes.get("validation_ne"))
    return min(trial.intermediate_values.values()) if known is None else known


def outcome_of(trial: "FrozenTrial") -> Outcome:
    """Read the outcome of a finished trial from the study."""
    attributes = trial.user_attrs
    times = {"seconds": attributes.get("seconds", 0.0), "joules": attributes.get("joules")}
    times["epochs"] = attributes.get("epochs")
    if not has_result(trial):
        return Outcome(state="failed", **times)
    return Outcome(
        state="pruned" if trial.state.name == "PRUNED" else "complete",
        validation_ne=attributes.get("validation_ne", lowest_loss(trial)),
        selected=attributes.get("selected"),
        costs={name: attributes[name] for name in COSTS if name in attributes},
        violations=dict(trial.constraints),
        **times,
    )


def tell(study: "Study", trial: "Trial", outcome: Outcome, cost: Cost | None) -> None:
    """Record the outcome of a running trial in the study; `cost` is the second objective besides NE, if any."""
    from optuna.trial import TrialState

    facts = {name: getattr(outcome, name) for name in ("validation_ne", "selected", "seconds", "joules", "epochs")}
    for name, value in {**facts, **outcome.costs}.items():
        if value is not None:
            trial.set_user_attr(name, value)
    for name, value in outcome.violations.items():
        trial.set_constraint(name, value)
    if outcome.state != "complete":
        study.tell(trial, state=TrialState.PRUNED if outcome.state == "pruned" else TrialState.FAIL)
        return
    assert outcome.loss is not None
    study.tell(trial, [outcome.loss, *([outcome.costs[cost]] if cost else [])])


def failures(study: "Study") -> list[str]:
    """Return the reasons of failed trials, oldest first."""
    return [reason for trial in study.get_trials(deepcopy=False) if (reason := _failure(trial))]


def _failure(trial: "FrozenTrial") -> str | None:
    """Return the reason of the trial's failure; None if it did not fail or was interrupted."""
    return trial.user_attrs.get(FAILURE) if trial.state.name == "FAIL" else None


def _open_storage(address: str) -> "BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    file = Path(address.removeprefix(SQLITE))
    try:
        if "://" not in address or address.startswith(SQLITE):
            file.parent.mkdir(parents=True, exist_ok=True)
        if "://" not in address:
            return JournalStorage(JournalFileBackend(str(file.expanduser())))
    except (OSError, ValueError) as error:  # ValueError: lines that are not JSON
        reason = getattr(error, "strerror", None) or str(error)
        raise TrackingError(
            f"The database {without_secrets(address)} of the search cannot be opened ({reason}): {_advice(error)}."
        ) from error
    return _open_database(address)


def _open_database(address: str) -> "RDBStorage":
    from optuna.storages import RDBStorage

    options = {"connect_args": {"timeout": LOCK_SECONDS}} if address.startswith("sqlite") else {}
    return RDBStorage(address, engine_kwargs=options)


def _advice(error: BaseException) -> str:
    code = getattr(error, "sqlite_errorname", "")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process holds it, so wait for that one, or name another with --search-storage"
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return "the file is damaged, so move it away or name another with --search-storage"
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")) or getattr(error, "errno", None) == errno.ENOSPC:
        return "make sure that there is space and that it can be written, and run the same command again"
    return "check that it can be reached and written, or name another with --search-storage"
