"""Record of a flow (durations, energy, reason of its end), stored with its run however the flow ends."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from shunter.engine.data.dataset import Dataset
from shunter.engine.stopping import StopKind
from shunter.engine.trained_model import Trained
from shunter.errors import TrackingError
from shunter.planner.history.record import FlowNotes, flow_evidence
from shunter.requests import JobRequest
from shunter.search.result import TuneResult
from shunter.tasks.spending import Spending
from shunter.tracking.convention import data_params
from shunter.tracking.evidence import (
    Evidence,
    EvidenceKind,
    Figures,
    data_key,
    limit_of,
    log_evidence,
    read_evidence,
)
from shunter.tracking.history import read_children

ENDS_OF_TRIALS = frozenset((StopKind.PRUNED, StopKind.SCREENING))  # the search continues after these


def record_trainings(notes: FlowNotes, trained: Sequence[Trained[Any, Any, Any, Any]]) -> None:
    """Note the first limit that ended one of the training runs; None if no limit did.

    An end by `--search-minutes` is planned and not recorded. The same holds for a pruned trial, because its search
    continues, and for the limit of an exploring trial.
    """
    reasons = [one.stop_reason for one in trained if one.stop_reason.kind not in ENDS_OF_TRIALS]
    reasons = [reason for reason in reasons if limit_of(reason) not in (None, "search")]
    reasons = [reason for reason in reasons if not (notes.pair and reason.is_exploration)]
    notes.stop_reason = reasons[0] if reasons else None


def record_search(notes: FlowNotes, result: TuneResult) -> None:
    """Record the seconds and joules of a search."""
    source = result.energy_source if result.energy_source in ("measured", "estimated") else None
    joules = result.joules if source else None
    notes.pair = result.pair
    notes.search = Figures(seconds=result.seconds or None, joules=joules or None, joules_source=source)


@contextmanager
def recorded_run(
    run_id: str,
    kind: EvidenceKind,
    request: JobRequest,
    dataset: Dataset | None = None,
    spent: Spending | None = None,
) -> Iterator[FlowNotes]:
    """Yield notes that the steps of the block fill in, and store the record of the run when the block ends.

    Args:
        run_id: MLflow run of the flow.
        kind: Kind of the run.
        request: Request of the flow.
        dataset: Data set; None if it is not known before the block.
        spent: Time and energy of the flow; None if they are not measured.
    """
    notes = FlowNotes(data="" if dataset is None else data_key(data_params(dataset)))

    def keep(error: BaseException | None) -> None:
        total = spent.total if spent else None
        found: list[Evidence | None] = []
        with suppress(TrackingError):
            found += [read_evidence(run.tags) for run in read_children(run_id, "trial")]
            # A resumed member includes its earlier attempts, whose runs have the same name.
            newest = {run.tags.get("mlflow.runName"): run for run in reversed(read_children(run_id, "member"))}
            found += [read_evidence(run.tags) for name, run in newest.items() if name not in notes.beside]
        trainings = [evidence for evidence in found if evidence is not None]
        log_evidence(run_id, flow_evidence(kind, request, notes, total=total, trainings=trainings, error=error))

    try:
        yield notes
    except BaseException as error:
        with suppress(TrackingError):  # report the first error
            keep(error)
        raise
    keep(None)
