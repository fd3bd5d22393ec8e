"""From trained members to the model that is registered."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.checkpoint.storage import load_model, save_model
from engine.config import Execution, SelectBy
from engine.data.dataset import Dataset
from engine.ensemble.forms import Packed
from engine.ensemble.race import PRESENT
from engine.ensemble.result import EnsembleResult, Member, MemoryFit, read_finished
from engine.ensemble.scored import score_test
from engine.ensemble.serving_cost import affordable, serving_cost
from engine.ensemble.verdict import Verdict, judge
from engine.ensemble.words import words_of
from engine.execution import execution_of
from engine.loop.evaluation import evaluate
from engine.metrics import FIGURES, compute_task_metrics
from engine.results import Evaluation
from engine.trained_model import TrainedModel
from hardware.types import Placement
from models.combination import Combination
from models.ensemble import Ensemble
from models.registry import Model
from tasks.ensemble.memory import WEIGHTS, Shrinker, Shrunk
from tracking.convention import model_params, placement_params, quality_metrics
from tracking.runs import Run, child_run, open_run


def combine_members(
    dataset: Dataset,
    members: Sequence[TrainedModel],
    placement: Placement,
    directory: Path,
    *,
    parent_run_id: str,
    seed: int = 0,
    select_by: SelectBy = "ne",
    most: int | None = None,
    max_milliseconds: float | None = None,
    max_bytes: int | None = None,
) -> EnsembleResult:
    """Combine members into an ensemble, keep it if it beats the best single, and score the result on the test part.

    The weights are fitted on one half of validation and judged on the other. The test part is scored exactly once:
    a second call with the same members returns what the first one found.

    Args:
        dataset: The data that the members were trained on.
        members: At least one, under different names.
        placement: Placement of the scoring.
        directory: Folder of the final model.
        parent_run_id: MLflow run below which this is logged, and which gets the final figures.
        seed: Seed of the halves.
        select_by: Figure that decides between ensemble and single.
        most: Models in the ensemble at most; None sets no bound.
        max_milliseconds: Milliseconds of a prediction of one row at most; None measures none.
        max_bytes: Bytes of all weights at most, for which members are packed where they need more; None sets no bound.

    Raises:
        InfeasibleError: No member predicts so fast, or has room in so few bytes.
        CheckpointError: A member's files are damaged.
        DataError: An array cannot be read.
        TrackingError: The store fails.
    """
    assert members, "an ensemble has at least one member"
    names = tuple(member.name for member in members)
    assert len(set(names)) == len(names), f"members share a name: {names}"
    result = read_finished(directory, dataset.fingerprint, names)
    if result is None:
        with child_run(parent_run_id, "ensemble", "ensemble") as run:
            allowed: Sequence[int] = range(len(members))
            if max_milliseconds is not None:
                allowed, most = _within(run, dataset, members, execution_of(placement), most, max_milliseconds)
            result = _combine(
                dataset,
                members,
                placement,
                directory,
                seed=seed,
                run_id=run.run_id,
                select_by=select_by,
                most=most,
                allowed=allowed,
                max_bytes=max_bytes,
            )
            result.save()
            _log_details(run, result, placement, members)
            _log_quality(run, result)
    _log_quality(open_run(parent_run_id), result)
    return result


def _within(  # noqa: PLR0917
    run: Run,
    dataset: Dataset,
    members: Sequence[TrainedModel],
    execution: Execution,
    most: int | None,
    limit: float,
) -> tuple[list[int], int]:
    """Numbers of the members that predict fast enough, and how many of them do together; what each costs is logged."""
    is_mapped = execution.maps_tables
    models = (load_model(one.directory, execution.device, is_mapped=is_mapped) for one in members)
    costs = [serving_cost(model, dataset, execution) for model in models]
    run.log_metrics(
        {
            f"serving.{figure}.{member.name}": getattr(cost, figure)
            for member, cost in zip(members, costs, strict=True)
            for figure in ("milliseconds", "weight_bytes")
        }
    )
    return affordable([cost.milliseconds for cost in costs], most, limit)


def _combine(
    dataset: Dataset,
    members: Sequence[TrainedModel],
    placement: Placement,
    directory: Path,
    *,
    seed: int,
    run_id: str,
    select_by: SelectBy,
    most: int | None,
    allowed: Sequence[int],
    max_bytes: int | None,
) -> EnsembleResult:
    execution = execution_of(placement)
    tasks = dataset.features.tasks
    evaluations = _score_validation(dataset, members, execution)
    labels, row_weights = evaluations[0].labels, evaluations[0].weights
    logits = np.stack([evaluation.logits for evaluation in evaluations])
    own = logits[list(allowed)]
    verdict = judge(labels, own, seed, row_weights=row_weights, tasks=tasks, select_by=select_by, most=most)
    verdict = verdict.among(allowed, len(members))
    shrunk: Shrunk | None = None
    if max_bytes is not None:
        asked = Shrinker(
            dataset=dataset,
            members=members,
            evaluations=evaluations,
            allowed=allowed,
            limit=max_bytes,
            most=most,
            seed=seed,
            select_by=select_by,
            threads=execution.threads,
        )
        shrunk = asked.shrink(verdict)
        verdict, logits = shrunk.verdict, shrunk.logits
    _save_result(members, verdict, directory, shrunk.packed if shrunk else {}, is_mapped=execution.maps_tables)
    memory = None if shrunk is None else _stored(shrunk, directory)
    names = [member.name for member in members]
    return EnsembleResult(
        directory=directory,
        data_fingerprint=dataset.fingerprint,
        kept="ensemble" if verdict.is_ensemble else "single",
        members=tuple(
            _member(member, weights, tasks) for member, weights in zip(members, verdict.weights, strict=True)
        ),
        best_single=names[verdict.best_single],
        judged_ensemble=verdict.ensemble,
        judged_single=verdict.single,
        validation=compute_task_metrics(tasks, labels, verdict.combine(logits), row_weights),
        # The files themselves are scored, so that the figure is that of what will be registered.
        test=score_test(directory, dataset, execution).metrics,
        reason=_reason(verdict, names, select_by) + (f" {memory.words}" if memory else ""),
        run_id=run_id,
        tasks=tasks,
        scale=float(verdict.scale.flat[0]),
        other_scales=dict(zip(tasks[1:], verdict.scale.flat[1:].tolist(), strict=True)),
        combined_by=verdict.combination.label if verdict.combination else "",
        tried_ne=verdict.ne,
        memory=memory,
    )


def _member(member: TrainedModel, weights: np.ndarray, tasks: Sequence[str]) -> Member:
    main, *others = np.atleast_1d(weights).tolist()
    of_others = dict(zip(tasks[1:], others, strict=True))
    return Member(name=member.name, weight=main, other_weights=of_others, trial=member.trial)


def _score_validation(dataset: Dataset, members: Sequence[TrainedModel], execution: Execution) -> list[Evaluation]:
    """What each member predicts, with one in memory at a time."""
    return [
        evaluate(
            load_model(member.directory, execution.device, is_mapped=execution.maps_tables),
            dataset,
            "validation",
            execution,
        )
        for member in members
    ]


def _stored(shrunk: Shrunk, directory: Path) -> MemoryFit:
    """What is told of the memory, with the bytes of the file that was written."""
    after = (directory / WEIGHTS).stat().st_size
    assert after <= shrunk.fit.limit_bytes, f"{after:,} bytes were stored, more than {shrunk.fit.limit_bytes:,}"
    return shrunk.fit.model_copy(update={"bytes_after": after})


def _save_result(
    members: Sequence[TrainedModel],
    verdict: Verdict,
    directory: Path,
    packed: Mapping[int, Packed],
    *,
    is_mapped: bool,
) -> None:
    chosen = verdict.chosen if verdict.is_ensemble else [verdict.best_single]
    tensors = [packed[index].tensors for index in chosen] if packed else None
    if verdict.is_ensemble:
        models = [_single(members[index].directory, is_mapped=is_mapped) for index in chosen]
        save_model(
            Ensemble(models, verdict.weights[chosen].tolist(), verdict.scale.tolist(), _combination(verdict)),
            directory,
            tensors,
        )
        return
    single = _single(members[verdict.best_single].directory, is_mapped=is_mapped)
    shares, combination = verdict.weights[[verdict.best_single]], _combination(verdict)
    is_changed = (verdict.scale != 1).any() or combination is not None
    ensemble = Ensemble([single], shares.tolist(), verdict.scale.tolist(), combination) if is_changed else single
    save_model(ensemble, directory, tensors)


def _combination(verdict: Verdict) -> Combination | None:
    """The combination of those members that are left: ranks and votes have figures of each."""
    found = verdict.combination
    if found is None or not found.references:
        return found
    return replace(found, references=tuple(found.references[index] for index in verdict.chosen))


def _single(directory: Path, *, is_mapped: bool) -> Model:
    model = load_model(directory, is_mapped=is_mapped)
    assert not isinstance(model, Ensemble), f"{directory} holds an ensemble, expected a single model"
    return model


def _reason(verdict: Verdict, names: Sequence[str], select_by: SelectBy) -> str:
    return f"{_choice(verdict, names, select_by)}{_calibration(verdict)}"


def _calibration(verdict: Verdict) -> str:
    if verdict.combination is not None:
        ne = verdict.ne
        return (
            f" {words_of(verdict.combination.label)}: NE {ne[verdict.combination.label]:.4f} against "
            f"{ne[PRESENT]:.4f} without that, where each half of validation is predicted by what the other has fitted."
        )
    main = float(verdict.scale.flat[0])
    if main == 1:
        return ""
    how = "too sure" if main < 1 else "not sure enough"
    return f" Its log odds are multiplied by {main:.2f}, for it was {how} of itself."


def _choice(verdict: Verdict, names: Sequence[str], select_by: SelectBy) -> str:
    single = names[verdict.best_single]
    if verdict.ensemble is None or verdict.single is None:
        return f"{single} is the result: nothing was combined with it."
    ensemble, alone = (getattr(one, select_by) for one in (verdict.ensemble, verdict.single))
    figures = (
        f"{FIGURES[select_by]} {ensemble:.4f} against {alone:.4f} of the best single, {single}, on the "
        f"{verdict.single.rows:,} validation rows that fitted no weights"
    )
    if verdict.is_ensemble:
        return f"The ensemble of {len(verdict.chosen)} models is kept: {figures}."
    return f"The single model {single} is kept, because the ensemble does not beat it: {figures}."


def _log_details(run: Run, result: EnsembleResult, placement: Placement, members: Sequence[TrainedModel]) -> None:
    best = next(member for member in members if member.name == result.best_single)
    run.log_params({**model_params(best.spec, best.hyperparameters), **placement_params(placement)})
    run.log_params({"ensemble.members": sum(member.is_used for member in result.members)})
    run.log_metrics({f"ensemble.weight.{member.name}": member.weight for member in result.members})
    for member in result.members:
        run.log_metrics(
            {f"ensemble.weight.{member.name}.{task}": weight for task, weight in member.other_weights.items()}
        )
    if result.judged_ensemble and result.judged_single:
        judged = {"ensemble_ne": result.judged_ensemble.ne, "single_ne": result.judged_single.ne}
        run.log_metrics({f"quality.judged.{name}": value for name, value in judged.items()})
    run.log_metrics({f"ensemble.tried_ne.{label}": ne for label, ne in result.tried_ne.items()})
    run.log_metrics(result.memory.metrics if result.memory else {})


def _log_quality(run: Run, result: EnsembleResult) -> None:
    run.log_metrics({**quality_metrics(result.validation), **quality_metrics(result.test, "test")})
    run.set_tags({"ensemble.kept": result.kept, "ensemble.reason": result.reason})
