"""Combination of trained members into the model that is registered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from torch import Tensor

from shunter.engine.checkpoint.checked_files import WEIGHTS
from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.checkpoint.storage import save_model
from shunter.engine.config import Execution, SelectBy
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.combinations import PRESENT
from shunter.engine.ensemble.ensemble_selection import EnsembleSelection, PackedResult, combined_as, select_ensemble
from shunter.engine.ensemble.result import RESULT, EnsembleResult, Member, MemoryFit, Serving, read_finished
from shunter.engine.ensemble.scored import read_scores, score_test
from shunter.engine.ensemble.serving_cost import ServingCost, ServingLimits, serving_cost, within_limits
from shunter.engine.execution import execution_of
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import compute_task_metrics, figure_name
from shunter.engine.results import Evaluation
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.requests import EnsembleRequest
from shunter.requests.effort import RESULT_LIMITS
from shunter.tracking.convention import Values, model_params, placement_params, quality_metrics
from shunter.tracking.runs import Run, child_run, open_run

HOW = {
    "single": "The single model",
    "fitted": "Weights fitted by the log loss",
    "greedy": "Weights by greedy selection with replacement",
    "diverse": "Equal weights of accurate and diverse members",
    "stacked": "Stacked by a logistic regression without negative weights",
}
OF = {
    "logits": "of log odds",
    "probabilities": "of probabilities",
    "ranks": "of ranks",
    "votes": "of votes",
}
CALIBRATED = {
    "temperature": "times a factor",
    "platt": "on a line fitted by Platt's calibration",
    "isotonic": "calibrated by isotonic regression",
}


@dataclass(frozen=True, kw_only=True)
class EnsembleLimits:
    """Limits on size and cost of the resulting model; None sets no limit.

    Attributes:
        most: Maximum number of models in the ensemble.
        serving: Limits on the cost of a prediction.
        memory_bytes: Maximum bytes of all weights; members are compressed if they need more.
        memory_error_rate: Share of the stored bits that flip on the target hardware; with `memory_bytes` the model is
            chosen for this error rate.
    """

    most: int | None = None
    serving: ServingLimits = field(default_factory=ServingLimits)
    memory_bytes: int | None = None
    memory_error_rate: float | None = None

    @classmethod
    def of(cls, request: EnsembleRequest) -> "EnsembleLimits":
        """Return the limits of a request."""
        return cls(
            most=request.most,
            serving=ServingLimits(milliseconds=request.max_predict_milliseconds, joules=request.max_predict_joules),
            memory_bytes=request.memory_bytes,
            memory_error_rate=request.memory_error_rate,
        )


NO_LIMITS = EnsembleLimits()


def combine_members(
    dataset: Dataset,
    members: Sequence[TrainedModel],
    placement: Placement,
    directory: Path,
    *,
    parent_run_id: str,
    seed: int = 0,
    select_by: SelectBy = "ne",
    limits: EnsembleLimits = NO_LIMITS,
) -> EnsembleResult:
    """Combine members, keep the ensemble if it beats the best single model, and score the result on the test part.

    The weights are cross-fitted on two halves of the validation part. The test part is scored exactly once: a second
    call with the same members returns the stored result.

    Args:
        dataset: The data that the members were trained on.
        members: Trained members, at least one, with different names.
        placement: Placement of the scoring.
        directory: Folder of the final model.
        parent_run_id: Parent of the MLflow run that this function opens; the final metrics are logged to both.
        seed: Seed of the halves.
        select_by: Metric that decides between the ensemble and the single model.
        limits: Limits on size and cost of the result.

    Raises:
        InfeasibleError: No member is within the limits on serving cost and memory.
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
            combining = Combining(dataset, members, placement, seed, select_by, limits)
            result = combining.result(directory, run.run_id)
            result.save()
            _log_details(run, result, placement, members)
            run.log_metrics(_quality_of(result))
            run.set_tags(_kept(result))
    parent = open_run(parent_run_id)
    others = {f"quality/{name}": value for name, value in result.test.more.items()}
    for task, quality in result.test.others.items():
        others |= {f"quality/auc.{task}": quality.auc, f"quality/ne.{task}": quality.ne}
    parent.log_figures("quality", {**_quality_of(result), **others})
    parent.set_tags(_kept(result))
    return result


@dataclass(frozen=True)
class Combining:
    """Combination of trained members, before the result is chosen."""

    dataset: Dataset
    members: Sequence[TrainedModel]
    placement: Placement
    seed: int = 0
    select_by: SelectBy = "ne"
    limits: EnsembleLimits = NO_LIMITS

    @cached_property
    def execution(self) -> Execution:
        """Return the execution (device, threads, precision) that scores the members."""
        return execution_of(self.placement)

    @cached_property
    def scored(self) -> list[tuple[Evaluation, ServingCost]]:
        """Return validation predictions and prediction cost of each member, with one member in memory at a time."""
        scored, execution = [], self.execution
        for member in self.members:
            model = load_to_score(member.directory, execution)
            evaluation = read_scores(member.directory, self.dataset, "validation", execution)  # stored by its training
            evaluation = evaluation or evaluate(model, self.dataset, "validation", execution)
            scored.append((evaluation, serving_cost(model, self.dataset, execution)))
            del model  # before the next one is loaded
        return scored

    @property
    def evaluations(self) -> list[Evaluation]:
        """Return the validation predictions of each member."""
        return [evaluation for evaluation, _ in self.scored]

    @cached_property
    def allowed(self) -> tuple[Sequence[int], int | None]:
        """Return the indices of members within the limits on serving cost, and the largest allowed ensemble size.

        Raises:
            InfeasibleError: No member is within the limits.
        """
        return within_limits([cost for _, cost in self.scored], self.limits.most, self.limits.serving)

    def selection(self, allowed: Sequence[int], most: int | None) -> EnsembleSelection:
        """Select the best ensemble of the members with indices `allowed`, with at most `most` models."""
        evaluations = self.evaluations
        selection = select_ensemble(
            evaluations[0].labels,
            np.stack([evaluations[index].logits for index in allowed]),
            self.seed,
            row_weights=evaluations[0].weights,
            tasks=self.dataset.features.tasks,
            select_by=self.select_by,
            most=most,
            number=self.dataset.features.number,
        )
        return selection.among(allowed, len(self.members))

    def save(
        self, selection: EnsembleSelection, directory: Path, packed: Mapping[int, Mapping[str, Tensor]] | None = None
    ) -> None:
        """Write the selected models into a folder, with compressed tensors by member index if `packed` is given."""
        execution = replace(self.execution, device="cpu")
        chosen = [self.members[index].directory for index in selection.chosen]
        models: list[Model] = []
        for directory_of_one in chosen:
            model = load_to_score(directory_of_one, execution, len(chosen))
            assert not isinstance(model, Ensemble), f"{directory_of_one} holds an ensemble, expected a single model"
            models.append(model)
        tensors = [packed[index] for index in selection.chosen] if packed else None
        save_model(combined_as(selection, models), directory, tensors)

    def result(self, directory: Path, run_id: str) -> EnsembleResult:
        """Select, write and score the resulting model."""
        tasks, evaluations = self.dataset.features.tasks, self.evaluations
        labels, row_weights = evaluations[0].labels, evaluations[0].weights
        logits = np.stack([evaluation.logits for evaluation in evaluations])
        selection = self.selection(*self.allowed)
        shrunk = self._shrunk(selection)
        if shrunk is not None:
            selection, logits = shrunk.selection, shrunk.logits
        self.save(selection, directory, shrunk.tensors if shrunk else None)
        memory = None if shrunk is None else _stored(shrunk, directory)
        names = [member.name for member in self.members]
        # Of each member: for the main task, and the others.
        weights = selection.weights.reshape(len(names), -1).tolist()
        return EnsembleResult(
            directory=directory,
            data_fingerprint=self.dataset.fingerprint,
            kept="ensemble" if selection.is_ensemble else "single",
            members=tuple(
                Member(
                    name=member.name,
                    weight=main,
                    other_weights=dict(zip(tasks[1:], others, strict=True)),
                    trial=member.trial,
                )
                for member, (main, *others) in zip(self.members, weights, strict=True)
            ),
            best_single=names[selection.best_single],
            judged_ensemble=selection.ensemble,
            judged_single=selection.single,
            validation=compute_task_metrics(
                tasks, labels, selection.combine(logits), row_weights, self.dataset.features.number
            ),
            # The written files are scored, so that the metrics are those of the registered model.
            test=score_test(directory, self.dataset, self.execution).metrics,
            reason=_choice(selection, names, self.select_by)
            + _calibration(selection)
            + (f" {memory.sentence}" if memory else ""),
            run_id=run_id,
            tasks=tasks,
            scale=float(selection.scale.flat[0]),
            other_scales=dict(zip(tasks[1:], selection.scale.flat[1:].tolist(), strict=True)),
            combined_by=selection.combination.label if selection.combination else "",
            tried_ne=selection.ne,
            memory=memory,
            serving=(
                *(Serving.of(name, one.metrics.ne, cost) for name, (one, cost) in zip(names, self.scored, strict=True)),
                self._of_result(directory, selection),
            ),
        )

    def _shrunk(self, selection: EnsembleSelection) -> PackedResult | None:
        limits, (allowed, most) = self.limits, self.allowed
        if limits.memory_bytes is None:
            return None
        shrinker = RESULT_LIMITS.load("ensemble-memory")(
            dataset=self.dataset,
            members=self.members,
            evaluations=self.evaluations,
            allowed=allowed,
            limit=limits.memory_bytes,
            most=most,
            seed=self.seed,
            select_by=self.select_by,
            threads=self.execution.threads,
            error_rate=limits.memory_error_rate,
        )
        return shrinker.shrink(selection)

    def _of_result(self, directory: Path, selection: EnsembleSelection) -> Serving:
        execution = self.execution
        model = load_to_score(directory, execution)
        if not isinstance(model, Ensemble) and self.limits.memory_bytes is None:  # a single member: already measured
            return Serving.of(RESULT, None, self.scored[selection.chosen[0]][1])
        return Serving.of(RESULT, None, serving_cost(model, self.dataset, execution))


def _stored(shrunk: PackedResult, directory: Path) -> MemoryFit:
    """Return the memory figures of the compressed result, with the bytes of the written file."""
    after = (directory / WEIGHTS).stat().st_size
    assert after <= shrunk.fit.limit_bytes, f"{after:,} bytes were stored, more than {shrunk.fit.limit_bytes:,}"
    return shrunk.fit.model_copy(update={"bytes_after": after})


def _calibration(selection: EnsembleSelection) -> str:
    if selection.combination is not None:
        ne = selection.ne
        return (
            f" {text_of(selection.combination.label)}: NE {ne[selection.combination.label]:.4f} against "
            f"{ne[PRESENT]:.4f} without calibration (each half of validation predicted by the fit on the other half)."
        )
    main = float(selection.scale.flat[0])
    if main == 1:
        return ""
    how = "overconfident" if main < 1 else "underconfident"
    return f" Its log odds are multiplied by {main:.2f}, because its predictions were {how}."


def _choice(selection: EnsembleSelection, names: Sequence[str], select_by: SelectBy) -> str:
    single = names[selection.best_single]
    if selection.ensemble is None or selection.single is None:
        return f"{single} is the result, without an ensemble."
    ensemble, alone = (getattr(one, select_by) for one in (selection.ensemble, selection.single))
    figure = figure_name(select_by, is_number=selection.single.rmse is not None)
    figures = (
        f"{figure} {ensemble:.4f} against {alone:.4f} of the best single, {single}, on the "
        f"{selection.single.rows:,} validation rows that were not used to fit the weights"
    )
    if selection.is_ensemble:
        return f"The ensemble of {len(selection.chosen)} models is kept: {figures}."
    return f"The single model {single} is the result, because the ensemble is not better: {figures}."


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
    run.log_metrics({name: value for one in result.serving for name, value in one.metrics.items()})
    run.log_metrics({f"ensemble.tried_ne.{label}": ne for label, ne in result.tried_ne.items()})
    run.log_metrics(result.memory.metrics if result.memory else {})


def _quality_of(result: EnsembleResult) -> Values:
    return {**quality_metrics(result.validation), **quality_metrics(result.test, "test")}


def _kept(result: EnsembleResult) -> dict[str, str]:
    return {"ensemble.kept": result.kept, "ensemble.reason": result.reason}


def text_of(label: str) -> str:
    """Return the label of an ensemble's weighting as text, such as `..., calibrated by isotonic regression`."""
    how, *others = label.split("-")
    of = "" if how == "single" else "".join(f" {OF[part]}" for part in others if part in OF)
    return HOW[how] + of + "".join(f", {CALIBRATED[part]}" for part in others if part in CALIBRATED)
