"""Step `baselines`: what costs seconds is trained first, and whatever comes after has to beat it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shunter.engine.checkpoint.storage import read_json, write_json
from shunter.engine.config import Hyperparameters, Schedule, SelectBy
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.results import EpochReport
from shunter.engine.stopping import ShouldStop, StopKind, StopReason
from shunter.engine.trained_model import TrainedModel
from shunter.errors import CheckpointError
from shunter.models.registry import model_spec
from shunter.models.spec import Features, ModelSpec, TablePrecision
from shunter.reporting.card.baselines import Rival, TrainedBaseline
from shunter.requests import HALF_TABLES, TREES, TrainRequest, baselines_of
from shunter.search.space.learning import FIRST_BINS, default_hyperparameters, weights_of_tasks
from shunter.tasks.baselines.trees import train_trees
from shunter.tasks.run_context import RunContext
from shunter.tasks.train import train_member
from shunter.tasks.training_plans import placement_of_one

__all__ = ["baseline_epochs", "baseline_spec", "candidates_of", "train_baselines", "train_rivals"]

# Embedding learning rates, of which the better on validation is kept: logs of few rows for each id and those of many
# differ by as much.
LEARNING_RATES = (0.02, 0.2)
MOST_SAMPLES = 5_000_000  # of one training, so that it stays one of seconds
PATIENCE = 2  # epochs without better validation
# Parts of the first pass after which the two rates are compared: the one behind is given up. Of fewer samples, chance
# tells more than the rate does.
CHECKS = (1 / 8, 1 / 2)
LEAST_SAMPLES = 100_000


class Race:
    """Compares validations of a second training with those of a first after as many samples.

    Those of the first are kept in a file, so that an attempt after an interruption decides as an undisturbed one.

    Args:
        path: The file.
        select_by: Figure that is compared.
        least_samples: Samples before which nothing is compared.
    """

    def __init__(self, path: Path, select_by: SelectBy, least_samples: int) -> None:
        self.lost: StopReason | None = None
        self._path, self._least_samples = path, least_samples
        self._select_by: SelectBy = select_by
        self._losses: dict[str, float] = self._kept()

    def lead(self, report: EpochReport) -> None:
        """Note a validation of the first."""
        self._losses[str(report.samples_seen)] = report.validation.loss_by(self._select_by)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, json.dumps(self._losses))

    def follow(self, report: EpochReport) -> None:
        """Compare a validation of the second; once it is behind, `lost` is set."""
        first = self._losses.get(str(report.samples_seen))
        second = report.validation.loss_by(self._select_by)
        if first is not None and report.samples_seen >= self._least_samples and second > first:
            self.lost = StopReason(StopKind.PRUNED, details={"samples": float(report.samples_seen)})

    def _kept(self) -> dict[str, float]:
        try:
            return {samples: float(loss) for samples, loss in read_json(self._path).items()}
        except (CheckpointError, TypeError, ValueError):
            return {}


def train_baselines(run: RunContext, ended: ShouldStop | None = None) -> list[TrainedBaseline]:
    """Train each baseline that is asked for, with the data and the engine of the model, and keep its better training.

    The second learning rate is given up as soon as it is behind the first after as many samples; the better one of the
    two always learns from every row. A baseline of the model's own family is left out, for the model's search covers
    it. What a limit leaves no room for is left out too.

    Args:
        run: The training.
        ended: What ends them beside the limits; None where nothing does.
    """
    run = run.within(ended) if ended else run
    families = [name for name in baselines_of(run.request) if name not in (run.request.model, TREES)]
    found = []
    for family in families:
        trained: list[TrainedModel] = []
        race = Race(run.directory / "baselines" / f"{family}.json", run.request.training.select_by.value, LEAST_SAMPLES)
        for rate in LEARNING_RATES:
            if run.baseline_stop.check():
                break
            trained.append(_train(run, family, rate, race))
        if trained:
            joules = [one.energy.joules for one in trained if one.energy.joules is not None]
            best = _best(trained, run.request)
            found.append(
                TrainedBaseline(
                    model=best.model_copy(update={"name": family}),
                    train_seconds=sum(one.train_seconds for one in trained),
                    joules=sum(joules) if len(joules) == len(trained) else None,
                )
            )
    return found


def train_rivals(run: RunContext, ended: ShouldStop | None = None) -> list[Rival]:
    """What is compared with the result alone, where it is asked for and a limit leaves room; see `train_baselines`."""
    if TREES not in baselines_of(run.request) or (run.within(ended) if ended else run).baseline_stop.check():
        return []
    trees = train_trees(run.dataset, run.directory / "baselines" / TREES, seed=run.request.seed)
    return [trees] if trees else []


def candidates_of(
    members: Sequence[TrainedModel], baselines: Sequence[TrainedBaseline], request: TrainRequest
) -> list[TrainedModel]:
    """Models to combine: members and baselines; where one model alone is wanted, the best of them on validation."""
    candidates = [*members, *(baseline.model for baseline in baselines)]
    if request.ensemble.most > 1:
        return candidates
    return [_best(candidates, request)]


def baseline_spec(family: str, features: Features, table_precision: TablePrecision = "fp32") -> ModelSpec:
    """The family's default, with rows as wide as a weight for each label takes, kept in a precision.

    Numbers are cut into the bins with which a search begins too.
    """
    default = model_spec(family)
    least = 4 * -(-(features.outputs + (0 if family == "lr" else 4)) // 4)
    width = max(default.embedding_dim, least)
    bins = FIRST_BINS if features.dense else 0
    return replace(default, embedding_dim=width, table_precision=table_precision, numeric_bins=bins)


def baseline_epochs(dataset: Dataset, max_epochs: int) -> int:
    """Longest training: as many passes as `MOST_SAMPLES` allow, one at least, and never more than are asked for."""
    return max(1, min(max_epochs, MOST_SAMPLES // max(1, dataset.splits["train"].rows)))


def baseline_checks(dataset: Dataset) -> tuple[float, ...]:
    """Where the rates are compared within the first pass; nowhere where a pass is short."""
    rows = dataset.splits["train"].rows
    return tuple(share for share in CHECKS if share * rows >= LEAST_SAMPLES)


def _best(trained: Sequence[TrainedModel], request: TrainRequest) -> TrainedModel:
    select_by = request.training.select_by.value
    return min(trained, key=lambda one: one.validation.loss_by(select_by))


def _train(run: RunContext, family: str, learning_rate: float, race: Race) -> TrainedModel:
    request = run.request
    precision = "fp16" if HALF_TABLES in request.architecture.set else "fp32"
    spec = baseline_spec(family, run.dataset.features, precision)
    placement = placement_of_one(run, spec)
    name = f"{family}-rate-{learning_rate:g}"
    is_first = learning_rate == LEARNING_RATES[0]
    job = TrainingJob(
        run.dataset,
        spec,
        _hyperparameters(family, learning_rate, request, run.dataset),
        execution_of(placement),
        Schedule(
            max_epochs=baseline_epochs(run.dataset, request.longest_epochs),
            patience=PATIENCE,
            seed=request.seed,
            select_by=request.training.select_by.value,
            checks=baseline_checks(run.dataset),
        ),
    )
    return train_member(
        job,
        placement,
        run.directory / "baselines" / name,
        name=name,
        parent_run_id=run.run_id,
        run_kind="baseline",
        should_stop=run.baseline_stop.check if is_first else lambda: race.lost or run.baseline_stop.check(),
        place=run.cluster,
        checkpoints=run.checkpoints,
        watch=race.lead if is_first else race.follow,
    )


def _hyperparameters(family: str, learning_rate: float, request: TrainRequest, dataset: Dataset) -> Hyperparameters:
    weights = weights_of_tasks(request.training.task_weights, dataset.features.tasks)
    return replace(default_hyperparameters(family), embedding_learning_rate=learning_rate, task_weights=weights)
