"""Repetition of a finished training run, with its request and with the choices it made from measurements or past runs.

Everything else follows from the request and its seeds. The choices are stored in the files from which an interrupted
run resumes, so a repeated run reads them like a resumed run.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from shunter.engine.checkpoint.checked_files import CHOICES
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.stopping import StopKind, StopReason
from shunter.errors import RequestError
from shunter.files import replace_file
from shunter.frozen import Frozen
from shunter.planner.decide import Decision
from shunter.requests import Promote, TrainRequest
from shunter.requests.support import CHAMPIONS, CLUSTER, Use
from shunter.tasks.run_state import RunState
from shunter.tracking.find import find_run
from shunter.tracking.reports import log_config
from shunter.tracking.tree import read_artifact

NAME = "choices"  # name of the artifact in `config/`
PLANS = "plans"  # folder in a run's state
# Options by which a run depends on a clock, a meter, other machines or other runs.
UNREPEATABLE = (
    *map(Use, ("search_minutes", "search_kwh", "search_storage")),
    *(Use("search_cost", "time"), Use("search_cost", "energy"), CHAMPIONS),
    *map(Use, ("max_predict_milliseconds", "max_predict_joules")),
    CLUSTER,
)
IN_TIME = frozenset((StopKind.LIMIT, StopKind.SEARCH_BUDGET, StopKind.SHARE, StopKind.EXPLORATION))


class Choices(Frozen):
    """Choices of a finished run that do not follow from its request.

    Attributes:
        decision: Decision on the placement.
        files: Texts of the other choices, by their path in the folder of the run's state.
        data_fingerprint: Fingerprint of the data set.
        data_version: Version of the table that was read, as `--data` takes it; empty for files.
        host: Kind of the machine.
        weights_sha256: Digest of the weights of the result.
        ended_in_time: Whether a clock or a meter ended the search or a training run.
    """

    version: int = 1
    decision: Decision
    files: Mapping[str, str] = Field(default={})
    data_fingerprint: str
    data_version: str = ""
    host: str
    weights_sha256: str
    ended_in_time: bool


class Repeat(Frozen):
    """Result of a repeated run."""

    run_id: str
    is_equal: bool
    same_host: bool


class NotRepeatableError(RequestError):
    """Error for a run that depends on a clock, or whose choices are not stored.

    Attributes:
        options: Options of the run that make it depend on a clock.
    """

    code = "not-repeatable"

    def __init__(self, message: str, options: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.options = tuple(options)


class Repetition(Frozen):
    """Finished run that is to be repeated."""

    run_id: str
    request: TrainRequest
    choices: Choices

    @classmethod
    def of(cls, run: str, register_as: str | None, promote: Promote) -> "Repetition":
        """Read the run to repeat from MLflow.

        Args:
            run: Name of the run; see `shunter.tracking.find.find_run`.
            register_as: Name under which the result is registered; None for the name of the data.
            promote: Condition under which the result becomes the champion.

        Raises:
            NotRepeatableError: The run depends on a clock, or its choices are not stored.
            RequestError: `run` matches no run, or several.
            TrackingError: The store cannot be read.
        """
        run_id = find_run(run)
        asked, kept = (read_artifact(run_id, f"config/{name}.json") for name in ("request", NAME))
        try:
            choices = Choices.model_validate_json(kept or "")
            request = TrainRequest.model_validate_json(asked or "")
        except ValidationError as error:
            raise NotRepeatableError(
                f"The run {run_id[:12]} does not record its choices and cannot be repeated: name a run "
                "that was completed by this or a later version of Shunter."
            ) from error
        if options := options_in_time(request):
            raise NotRepeatableError(
                f"The run {run_id[:12]} cannot be repeated bit by bit, because it depends on a clock, "
                f"other machines or other runs through {', '.join(options)}: train with its job file "
                "instead, `shunter train --config job.yaml`.",
                options,
            )
        if choices.ended_in_time:
            raise NotRepeatableError(
                f"The run {run_id[:12]} cannot be repeated bit by bit, because a time or energy limit "
                "ended one of its training runs: name a run that completed all epochs."
            )
        training = request.training.model_copy(update={"fixed_threads": True})
        update = {"training": training, "register_as": register_as, "promote": promote}
        update |= {"data": choices.data_version} if choices.data_version else {}
        return cls(run_id=run_id, request=request.model_copy(update=update), choices=choices)

    @property
    def purpose(self) -> str:
        """Purpose of the repeated run for `RunState`, so that no other run of the same request uses its folder."""
        return f"repeat-{self.run_id[:12]}"

    def begin(self, state: RunState, dataset: Dataset) -> None:
        """Copy the choices of the repeated run into the state of the new run, unless the state has a decision already.

        Raises:
            NotRepeatableError: The data differs from that of the repeated run, or a recorded path is not
                that of a choice file.
        """
        if dataset.fingerprint != self.choices.data_fingerprint:
            raise NotRepeatableError(
                f"The data set {dataset.name!r} has changed since the run {self.run_id[:12]}: restore the former data."
            )
        if state.recall("decision", Decision) is not None:  # the decision is written last, so all choices are there
            return
        for name, text in self.choices.files.items():
            path = state.directory / name
            if not _is_choice(path) or not path.resolve().is_relative_to(state.directory.resolve()):
                raise NotRepeatableError(
                    f"The recorded choices of the run {self.run_id[:12]} contain the path {name}, which is "
                    "not one of their files: name another run."
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text)
        state.remember("decision", self.choices.decision.model_copy(update={"exploration": None}))

    def outcome(self, choices: Choices) -> Repeat:
        """Compare the weights and the machine of the new run with those of the repeated run."""
        before = self.choices
        return Repeat(
            run_id=self.run_id,
            is_equal=choices.weights_sha256 == before.weights_sha256,
            same_host=choices.host == before.host,
        )


def keep_choices(
    run_id: str,
    state: RunState,
    *,
    dataset: Dataset,
    host: str,
    decision: Decision,
    result: EnsembleResult | TrainedRanker,
    reasons: Sequence[StopReason | None],
) -> Choices:
    """Store with a run the choices that a repetition needs.

    Raises:
        TrackingError: The store fails.
    """
    found = [path for path in sorted(state.directory.rglob("*")) if _is_choice(path)]
    choices = Choices(
        decision=decision,
        files={str(path.relative_to(state.directory)): path.read_text() for path in found},
        data_fingerprint=dataset.fingerprint,
        data_version="".join(dataset.versions[:1]),
        host=host,
        weights_sha256=weights_digest(result.directory),
        ended_in_time=any(reason is not None and reason.kind in IN_TIME for reason in reasons),
    )
    log_config(run_id, NAME, choices)
    return choices


def weights_digest(directory: Path) -> str:
    """Return the SHA-256 of all weights of a finished model: names and content of its safetensors files."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*.safetensors")):
        with path.open("rb") as weights:  # the file may be larger than the memory
            content = hashlib.file_digest(weights, "sha256").hexdigest()
        digest.update(f"{path.relative_to(directory)}\0{content}\0".encode())
    return digest.hexdigest()


def _is_choice(path: Path) -> bool:
    return path.match(CHOICES) or path.parent.name == PLANS


def options_in_time(request: TrainRequest) -> list[str]:
    """Return the options by which a run depends on a clock, a meter, other machines or other runs."""
    given = request.stated()
    return [str(use) for use in UNREPEATABLE if use.is_in(given)]
