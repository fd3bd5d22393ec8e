"""Errors that Shunter raises for a user.

Each message is one sentence that names the thing, says what was expected and what to do. The command line prints
the sentence and exits with `exit_code`; `--debug` shows the traceback. Programming errors are assertions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, TypeVar

Kind = TypeVar("Kind", bound=BaseException)


class ShunterError(Exception):
    """Base of every error that a user can cause or fix.

    Attributes:
        code: Stable name of the kind of error, for programs; each class has its own.
        exit_code: Code with which a command ends.
    """

    code: ClassVar[str] = "error"
    exit_code = 1


class ServerTimeoutError(ShunterError):
    """A server of this machine has been started and does not answer.

    Attributes:
        name: Name of the server.
        url: Address at which the server was expected.
        waited_seconds: Time that the server had to answer.
    """

    code = "server-timeout"

    def __init__(self, name: str, url: str, waited_seconds: float, log: str) -> None:
        super().__init__(name, url, waited_seconds, log)
        self.name, self.url, self.waited_seconds, self._log = name, url, waited_seconds, log

    def __str__(self) -> str:
        """Return the error message."""
        waited = f"{self.waited_seconds:g} seconds"
        return f"{self.name} did not answer at {self.url} within {waited} after its start: {self._log} to see its log."


class RequestError(ShunterError):
    """The request itself is wrong: an unknown name, a value out of range, limits that contradict each other."""

    code = "wrong-request"
    exit_code = 2


class SeveralModelsError(RequestError):
    """Error of a request without a model name although several models are registered.

    Attributes:
        names: Names of the registered models.
    """

    code = "several-models"

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.names = tuple(names)

    def __str__(self) -> str:
        """Return the error message."""
        return f"There are several registered models: name one of {', '.join(self.names)}."


class UnknownNameError(RequestError):
    """Error of a name that no implementation of a role has.

    Attributes:
        role: Role, such as `dense optimizer`.
        name: Requested name.
        known: Names that are known.
    """

    code = "unknown-name"

    def __init__(self, role: str, name: str, known: Sequence[str], nearest: Sequence[str] = ()) -> None:
        super().__init__(role, name, known, nearest)
        self.role, self.name, self.known, self.nearest = role, name, tuple(known), tuple(nearest)

    def __str__(self) -> str:
        """Return the error message."""
        hint = f" Did you mean {self.nearest[0]!r}?" if self.nearest else ""
        return f"Unknown {self.role} {self.name!r}: use one of {', '.join(self.known)}.{hint}"


class MissingExtensionError(RequestError):
    """The requested implementation belongs to an extension or an application that is not installed.

    Attributes:
        role: Role, such as `dense optimizer`.
        name: Requested name.
        extension: Folder of `extensions/`, or the application, that is absent.
    """

    code = "missing-extension"

    def __init__(self, role: str, name: str, extension: str) -> None:
        super().__init__(role, name, extension)
        self.role, self.name, self.extension = role, name, extension

    def __str__(self) -> str:
        """Return the error message."""
        return f"The {self.role} {self.name!r} needs {self.extension!r}, which is not installed."


class UnsupportedError(RequestError):
    """Error: the model does not support the requested action, or a requirement of the action is missing.

    Attributes:
        method: Requested action of the model.
        model: Name of the model.
        needs: Requirement of the action.
    """

    code = "unsupported"

    def __init__(self, method: str, model: str, needs: str) -> None:
        super().__init__(method, model, needs)
        self.method, self.model, self.needs = method, model, needs

    def __str__(self) -> str:
        """Return the error message."""
        return f"The model {self.model} cannot {self.method}: that needs {self.needs}."


class MissingPackageError(RequestError):
    """Error of a request that needs a package that is not installed.

    Attributes:
        package: Name of the package.
        extra: Extra of Shunter that installs it.
    """

    code = "missing-package"

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package, self.extra = package, extra

    def __str__(self) -> str:
        """Return the error message."""
        return f"{self.package} is not installed: run `pip install 'shunter[{self.extra}]'`."


class TooLargeError(RequestError):
    """A model does not fit into memory."""

    code = "too-large"


class ModelTooLargeError(TooLargeError):
    """A ranking model that is solved in closed form does not fit into memory.

    Attributes:
        family: Family of the model.
        needed_bytes: Estimated peak memory to solve the model, in bytes.
        available_bytes: Memory that is left.
        sparse_form: Family with weights for some pairs of items only; empty if there is none.
        low_rank_form: Family with vectors instead of weights of pairs; empty if there is none.
    """

    code = "model-too-large"

    def __init__(
        self, family: str, needed_bytes: int, available_bytes: int, sparse_form: str = "", low_rank_form: str = ""
    ) -> None:
        super().__init__(family, needed_bytes, available_bytes, sparse_form, low_rank_form)
        self.family, self.needed_bytes, self.available_bytes = family, needed_bytes, available_bytes
        self.sparse_form, self.low_rank_form = sparse_form, low_rank_form

    def __str__(self) -> str:
        """Return the error message."""
        forms = ((self.sparse_form, "its sparse form"), (self.low_rank_form, "its low-rank form"))
        instead = " or ".join(f"{name} ({what})" for name, what in forms if name)
        needed, left = self.needed_bytes / 2**30, self.available_bytes / 2**30
        sizes = f"Model {self.family!r} takes {needed:.3g} GiB of memory and {left:.3g} GiB are left"
        return f"{sizes}: use {instead} with --model." if instead else f"{sizes}: free memory."


class DataError(ShunterError):
    """The data cannot be used: a missing file or column, a truncated archive, too many bad rows, a single class."""

    code = "unusable-data"
    exit_code = 3


class ColumnError(DataError):
    """Error of a single column of a file that cannot be read.

    Attributes:
        column: Name of the column.
        path: The file, or a name for rows that come from no file.
    """

    code = "unreadable-column"

    def __init__(self, column: str, path: Path | str, problem: str) -> None:
        super().__init__(column, path, problem)
        self.column, self.path, self._problem = column, path, problem

    def __str__(self) -> str:
        """Return the error message."""
        return f"Column {self.column} of {self.path} {self._problem}."


class DamagedDataError(DataError):
    """An ingested data set does not match the checksums that were taken when it was written.

    Attributes:
        path: The damaged file.
    """

    code = "damaged-data"

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message, path)
        self.path = path

    def __str__(self) -> str:
        """Return the error message."""
        return str(self.args[0])


class UnusableValuesError(DataError):
    """Error of a column with too many values that are unreadable or unknown to the model.

    Attributes:
        shares: Share of such values of each column above the limit.
        limit: Largest share that is allowed.
    """

    code = "unusable-values"

    def __init__(self, shares: Mapping[str, float], limit: float, listed: str) -> None:
        super().__init__(shares, limit, listed)
        self.shares, self.limit, self._listed = shares, limit, listed

    def __str__(self) -> str:
        """Return the error message."""
        return (
            f"Unknown or unreadable values above --max-unknown {self.limit:g}: {self._listed}. Check how these columns "
            "are written, or raise the limit."
        )


class UnusableValuesWarning(UserWarning):
    """Rows that were scored hold values that the model does not know or cannot read.

    Attributes:
        shares: Share among the given values, by kind (`unknown`, `unreadable`, `number_for_text`) and column.
    """

    def __init__(self, message: str, shares: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__(message)
        self.shares = shares


class InfeasibleError(ShunterError):
    """Error of limits that no placement meets; the message names the nearest placements."""

    code = "infeasible"
    exit_code = 4


class QualityNotReachedError(InfeasibleError):
    """Error of a trained model below the quality limit.

    Attributes:
        auc: Best AUC that was reached on the validation part.
    """

    code = "quality-missed"

    def __init__(self, message: str, auc: float) -> None:
        super().__init__(message)
        self.auc = auc


class DegradedModelError(InfeasibleError):
    """Error: the champion in use is degraded on the evaluation day.

    Attributes:
        words: Error message: the finding about the champion.
    """

    code = "degraded-model"

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class TrainingError(ShunterError):
    """Error that ends a training job, for instance a loss that is no longer a number."""

    code = "training-failed"
    exit_code = 5


class ProcessLostError(TrainingError):
    """Error: a training process was ended from outside."""

    code = "process-lost"


class CheckpointError(ShunterError):
    """Error of a checkpoint that is missing, truncated or of another model."""

    code = "unusable-checkpoint"
    exit_code = 6


class DamagedFileError(CheckpointError):
    """Error: a stored file does not match the checksum that was computed when it was written.

    Attributes:
        path: The damaged file.
        reason: Description of the damage.
    """

    code = "damaged-file"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        """Return the error message."""
        return f"The file {self.path} is damaged ({self.reason}): restore it or start anew."


class HardwareError(ShunterError):
    """An accelerator cannot be found, measured or used."""

    code = "hardware"
    exit_code = 7


class TrackingError(ShunterError):
    """The tracking store cannot be reached, read or written."""

    code = "tracking-store"
    exit_code = 8


class CallbackError(ShunterError):
    """A callback of another distribution raised an error, which ends the run.

    Attributes:
        name: Name of the callback.
        method: Method that raised.
    """

    code = "callback"

    def __init__(self, name: str, method: str, error: Exception) -> None:
        super().__init__(name, method, error)
        self.name, self.method, self._reason = name, method, f"{type(error).__name__}: {first_line(error)}"

    def __str__(self) -> str:
        """Return the error message."""
        return (
            f"The callback {self.name!r} failed in {self.method} ({self._reason}): correct or uninstall its package, "
            "then run the same command again."
        )


class StorageError(ShunterError):
    """A file cannot be opened or written: the disk is full, the folder read-only, or the file would be too large.

    Attributes:
        path: The file, where the system names it.
        reason: Message of the operating system.
    """

    code = "storage"
    exit_code = 9

    def __init__(self, path: str | None, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        """Return the error message."""
        what = self.path or "A file of the home or of the temporary folder"
        advice = "make room and permit access, or name another SHUNTER_HOME"
        return f"{what} cannot be opened or written ({self.reason}): {advice}."


class OutputError(StorageError):
    """The standard output cannot be written.

    Attributes:
        is_pipe_closed: Whether the reader has closed the pipe, as `head` does; a shell then reports exit status 141.
    """

    code = "output"

    def __init__(self, error: OSError) -> None:
        super().__init__(None, first_line(error))
        self.is_pipe_closed = isinstance(error, BrokenPipeError)
        if self.is_pipe_closed:
            self.exit_code = 141

    def __str__(self) -> str:
        """Return the error message."""
        return f"The output cannot be written ({self.reason}): redirect it to a writable place."


class Distrust(StrEnum):
    """Reason why a model is not loaded."""

    UNSIGNED = "it is not signed"
    UNKNOWN_KEY = "none of this home's keys has signed it"
    CHANGED = "it was changed after it was signed"


class UntrustedModelError(TrackingError):
    """Error: no key of this home has signed the model in its present state.

    Attributes:
        name: Name of the model in messages.
        reason: Reason why the model is not loaded.
        fingerprint: Fingerprint by which the model can be accepted.
    """

    code = "untrusted-model"

    def __init__(self, name: str, reason: Distrust, fingerprint: str) -> None:
        super().__init__(name, reason, fingerprint)
        self.name, self.reason, self.fingerprint = name, reason, fingerprint

    def __str__(self) -> str:
        """Return the error message."""
        key = "name the key with SHUNTER_MODEL_KEY, or " if self.reason is Distrust.UNKNOWN_KEY else ""
        return (
            f"The model {self.name!r} is not loaded: {self.reason}. Use another version; or {key}if you trust the "
            f"model, accept its fingerprint: --accept {self.fingerprint} (in services and Python: "
            "SHUNTER_ACCEPTED_MODELS)."
        )


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def find_cause(error: BaseException, kind: type[Kind]) -> Kind | None:
    """Return the first error of type `kind` among an error and its causes; None if there is none."""
    return next((cause for cause in causes_of(error) if isinstance(cause, kind)), None)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message without class names; the name of the error if it has no message."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return (re.sub(r"^\([\w.]+Error\) ", "", str(error)).strip() or type(error).__name__).splitlines()[0].rstrip(".")
