"""Distillation: one model that learns the predictions of the ensemble of all members, as a further candidate."""

from collections.abc import Sequence
from dataclasses import replace

from shunter.engine.checkpoint.checked_files import WEIGHTS
from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.ensemble.distillation import softened
from shunter.engine.ensemble.ensemble_selection import EnsembleSelection
from shunter.engine.ensemble.result import FILE_OVERHEAD_BYTES
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.requests import Distill
from shunter.search.result import TuneResult
from shunter.tasks.ensemble.combine import Combining, EnsembleLimits
from shunter.tasks.ensemble.members import planned, train_one
from shunter.tasks.run_context import RunContext

NAME = "distilled"


def distil(
    run: RunContext, tuned: TuneResult, members: Sequence[TrainedModel], placement: Placement
) -> list[TrainedModel]:
    """Train the best setting on the predictions of the ensemble of all members, if requested or likely useful.

    The teacher is the ensemble that would be selected without limits on prediction cost and memory.

    Args:
        run: Context of the run.
        tuned: Result of the search, with the best settings.
        members: Models that may be combined.
        placement: Placement of the scoring.

    Returns:
        The distilled model; empty if it is not requested, if the best result is a single model, or if a limit of the
        run is reached.
    """
    wanted, limits = run.request.ensemble.distill, EnsembleLimits.of(run.request.ensemble)
    is_limited = limits.memory_bytes is not None or limits.serving.is_set
    if run.dataset.features.number is not None:  # labels that are numbers are not mixed with probabilities
        return []
    if wanted is Distill.NEVER or (wanted is Distill.AUTO and not is_limited) or run.cluster or run.should_stop():
        return []
    combining = Combining(
        run.dataset, members, placement, run.request.seed, run.request.training.select_by.value, limits
    )
    selection = combining.selection(range(len(members)), limits.most)
    if not selection.is_ensemble or (wanted is Distill.AUTO and _has_room(combining, selection)):
        return []
    teacher = run.directory / "teacher"
    combining.save(selection, teacher)
    model = load_to_score(teacher, combining.execution)
    data = softened(run.dataset, teacher, model, combining.execution, run.directory / "softened")
    job, where, expected = planned(run, tuned.winners[0], 0)
    job = replace(job, dataset=data)
    return [train_one(run, job, where, expected, run.directory / "members" / NAME, name=NAME)]


def _has_room(combining: Combining, selection: EnsembleSelection) -> bool:
    """Return True if the uncompressed ensemble keeps the limits on prediction cost and memory."""
    limits, costs = combining.limits, [combining.scored[index][1] for index in selection.chosen]
    stored = sum((combining.members[index].directory / WEIGHTS).stat().st_size for index in selection.chosen)
    is_small = limits.memory_bytes is None or stored + FILE_OVERHEAD_BYTES <= limits.memory_bytes
    return is_small and limits.serving.are_kept_by(costs)
