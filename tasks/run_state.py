"""State of one run in a folder that outlives its process, so that an interrupted run can be resumed."""

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel
from pydantic_core import to_json

from shunter.checked_json import json_object, read_checked, read_or_quarantine
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.checkpoint.copies import CHECKPOINT_COPIES
from shunter.engine.data.dataset import Dataset
from shunter.errors import DamagedFileError, RequestError, ShunterError, TrackingError, find_cause
from shunter.quarantine import quarantine
from shunter.requests import Explore, TrainRequest
from shunter.settings import Settings
from shunter.tracking.runs import UNFINISHED, give_up, status_of

State = TypeVar("State", bound=BaseModel)
Result = TypeVar("Result")
P = ParamSpec("P")

FINISHED = ".finished"  # suffix of a folder that is being removed
IDENTITY = "identity.json"  # file with the id of the MLflow run
DATA = "dataset"  # file with the name of the run's data folder in the cache
FREE_TO_CHANGE = {"processes", "priority", "log_to"}  # options whose change does not prevent that a run is resumed
KEY_ORDER = (
    *("data", "format", "schema_file", "max_bad_share", "model", "towers", "objective", "limits", "price_per_hour"),
    *("billing", "trials", "search_minutes", "search_kwh", "max_epochs", "ensemble_size", "seed", "explore", "cluster"),
    *("cluster_resource", "fixed_threads", "tower_partition", "task_weights", "search_method", "cold_start"),
    *("search_space", "search_cost", "parallel_trials", "search_storage", "register_as"),
)

# Options that the first version did not have, with their defaults; at the default an option is not part of the key.
LATER: dict[str, Any] = {
    "validation": None,
    "test": None,
    "batch_sizes": None,
    "max_quality_loss": None,
    "grid": None,
    "prices": None,
    "select_by": "ne",
    "repeats": "drop",
    "set": [],
    "baselines": None,
    "promote": "confident",
    "checkpoint_minutes": 5.0,
    "checkpoint_bits": "auto",
    "checkpoint_policy": "auto",
    "keep_checkpoints": 2,
    "checkpoint_rate": None,
    "checkpoint_copy": None,
    "ensemble_of": "members",
    "max_predict_milliseconds": None,
    "ensemble_memory": None,
    "max_predict_joules": None,
    "memory_error_rate": None,
    "distill": "auto",
    "min_auc_confidence": None,
    "max_ne": None,
    "embedding_memory": None,
    "plan": None,
    "preset": "standard",
    "loss": None,
    "where": None,
}


class StateFolder:
    """Folder that outlives the process, until its work is finished.

    The folder of finished work is removed; lasting results are in MLflow. As a context manager, it holds a lock.

    Args:
        directory: Folder of the state.
        what: Name of the work, for the message of another process that tries to start the same work.
        fresh: Whether to delete the state of an earlier attempt.
        lock: Path of the lock file; beside the folder if omitted.
    """

    def __init__(self, directory: Path, what: str, *, fresh: bool = False, lock: Path | None = None) -> None:
        self.directory = directory
        self.resumed = False
        self._what, self._fresh = what, fresh
        self._lock = FileLock(lock or directory.with_name(f"{directory.name}.lock"), timeout=0)

    def __enter__(self) -> Self:
        """Take the lock and create or reopen the folder.

        Raises:
            RequestError: Another process is running the same work.
        """
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise RequestError(
                f"Another process already runs the same {self._what}, with its state in {self.directory}: "
                "wait until it has ended."
            ) from None
        if self._fresh:
            end_given_up(self.directory)
            shutil.rmtree(self.directory, ignore_errors=True)
        self.resumed = self.directory.exists()
        self.directory.mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lock; the folder stays unless `finish` was called."""
        self._lock.release()

    def remember(self, name: str, value: BaseModel) -> None:
        """Store `value` under `name` atomically, replacing an earlier value.

        Raises:
            CheckpointError: The value cannot be written, for instance because the disk is full.
        """
        write_json(self.directory / f"{name}.json", value.model_dump_json())

    def recall(self, name: str, model: type[State]) -> State | None:
        """Return the value stored under `name`; None if it is missing or does not match the class `model`."""
        text = read_or_quarantine(self.directory / f"{name}.json", bytes)
        try:
            return None if text is None else model.model_validate_json(text)
        except ValueError:
            return None

    def recovering(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run work that resumes from this folder; if a stored file is damaged, quarantine it and run the work again.

        A file in a subfolder, such as the weights of a member, is quarantined with that folder. Only the training of
        that folder is then repeated.
        """
        while True:
            try:
                return work(*args, **kwargs)
            except ShunterError as error:
                damaged = find_cause(error, DamagedFileError)
                if damaged is None or not damaged.path.is_relative_to(self.directory):
                    raise
                path, reason = damaged.path, damaged.reason
                part = path if path.parent == self.directory else path.parent
                if quarantine(part, reason if part == path else f"{path.name}: {reason}") is None:
                    raise

    def clear(self) -> None:
        """Delete the state of an earlier attempt."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self.resumed = False

    def finish(self) -> None:
        """Remove the folder of a complete run; even if a kill interrupts the removal, the run is not resumed."""
        finished = self.directory.with_name(f"{self.directory.name}{FINISHED}")
        shutil.rmtree(finished, ignore_errors=True)  # remains of an interrupted removal
        self.directory.rename(finished)
        shutil.rmtree(finished)


class RunState(StateFolder):
    """State folder of an unfinished run: decision, used time and energy, study and checkpoints.

    The same request on the same data and machine has the same folder, so repeating the command resumes the run.

    Args:
        request: Request of the run.
        dataset: Data set.
        host: Kind of the machine.
        fresh: Whether to delete the state of an earlier attempt.
        purpose: Purpose of the run; each purpose has a separate folder.
    """

    def __init__(
        self, request: TrainRequest, dataset: Dataset, host: str, *, fresh: bool = False, purpose: str = "train"
    ) -> None:
        key = hashlib.sha256(f"{_key_text(request)}|{dataset.fingerprint}|{host}".encode()).hexdigest()[:16]
        if purpose != "train":
            key = f"{purpose}-{key}"
        super().__init__(Settings().runs_directory / key, "training", fresh=fresh)


def end_given_up(folder: Path) -> None:
    """End the MLflow run of an unfinished run whose folder will be removed; do nothing if MLflow is unreachable."""
    run_id = read_or_quarantine(folder / IDENTITY, _run_of)
    if run_id is not None:
        with contextlib.suppress(TrackingError):
            give_up(run_id)


def killed_runs() -> Iterator[tuple[Path, str]]:
    """Yield state folder and MLflow run of killed training and nightly runs that MLflow still shows as running.

    Runs of a store that cannot be read are left out.
    """
    nights = Settings().nights_directory.glob("*/state")
    locks = {folder: folder.with_name(f"{folder.name}.lock") for folder in unfinished_runs()}
    for folder, lock in (locks | {folder: folder.with_name("lock") for folder in nights}).items():
        with contextlib.suppress(OSError, Timeout, DamagedFileError, TrackingError):
            run_id = read_checked(folder / IDENTITY, _run_of)
            if lock.exists():
                with FileLock(lock, timeout=0):
                    pass
            if status_of(run_id) == UNFINISHED:
                yield folder, run_id


def _run_of(identity: bytes) -> str:
    fields = json_object(identity)
    return str(fields["parent_run_id"] if "parent_run_id" in fields else fields["run_id"])


def copies_address(request: TrainRequest, dataset: Dataset) -> str | None:
    """Return the address of the run's checkpoint copies, which is the same on every machine; None without copies."""
    address = request.checkpoints.checkpoint_copy
    if address is None:
        return None
    key = hashlib.sha256(f"{_key_text(request)}|{dataset.fingerprint}".encode()).hexdigest()[:16]
    return f"{address.rstrip('/')}/{key}"


def check_copies(request: TrainRequest) -> None:
    """Check that checkpoints can be copied to the address that the request names, if any.

    Raises:
        RequestError: The address cannot be written to.
        MissingExtensionError: No installed extension copies checkpoints.
    """
    if request.checkpoints.checkpoint_copy is not None:
        CHECKPOINT_COPIES.load_part("remote", "check")(request.checkpoints.checkpoint_copy)


def forget_copies(request: TrainRequest, dataset: Dataset) -> None:
    """Remove the checkpoint copies of a run whose result is stored."""
    if (address := copies_address(request, dataset)) is not None:
        CHECKPOINT_COPIES.load_part("remote", "remove")(address)


def _key_text(request: TrainRequest) -> str:
    """Return the request as the JSON text whose digest names the state folder.

    The format is that of Shunter's first version, so that runs of earlier versions can be resumed.
    """
    asked = request.flat()
    names = [*KEY_ORDER, *sorted(asked.keys() - {*KEY_ORDER, *FREE_TO_CHANGE})]
    kept = {name: asked[name] for name in names if not (name in LATER and asked[name] == LATER[name])}
    kept["register_as"] = asked["register_as"] or "shunter"  # the default name
    kept["explore"] = asked["explore"] == Explore.FREE  # a flag in the first version
    kept["max_epochs"] = request.longest_epochs  # an integer in the first version
    kept["parallel_trials"] = request.search.trials_at_a_time  # likewise
    kept["ensemble_size"] = request.ensemble.trained  # likewise
    return to_json(kept).decode()


def unfinished_runs() -> list[Path]:
    """Return the folders of interrupted runs, newest first."""
    folders = [
        path for path in Settings().runs_directory.glob("*") if path.is_dir() and not path.name.endswith(FINISHED)
    ]
    return sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)
