"""Step `baselines`: models that train within seconds, with which later models are compared."""

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

# Embedding learning rates; the better one on the validation part is used. The best rates of logs with few and with many
# rows per id differ by about this factor.
LEARNING_RATES = (0.02, 0.2)
MOST_SAMPLES = 5_000_000  # of one training, so that it takes seconds
PATIENCE = 2  # epochs without an improvement on validation
# Shares of the first epoch after which the two rates are compared and the worse one is stopped. With fewer samples the
# comparison is dominated by chance.
CHECKS = (1 / 8, 1 / 2)
LEAST_SAMPLES = 100_000


class Race:
    """Comparison of the validation losses of two trainings after the same number of samples.

    The losses of the first training are kept in a file, so that a resumed run decides as an uninterrupted one.

    Args:
        path: File of the losses.
        select_by: Metric that is compared.
        least_samples: Number of samples before the first comparison.
    """

    def __init__(self, path: Path, select_by: SelectBy, least_samples: int) -> None:
        self.lost: StopReason | None = None
        self._path, self._least_samples = path, least_samples
        self._select_by: SelectBy = select_by
        self._losses: dict[str, float] = self._kept()

    def lead(self, report: EpochReport) -> None:
        """Record a validation loss of the first training."""
        self._losses[str(report.samples_seen)] = report.validation.loss_by(self._select_by)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, json.dumps(self._losses))

    def follow(self, report: EpochReport) -> None:
        """Compare a validation loss of the second training; set `lost` if it is worse than that of the first."""
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
    """Train each requested baseline with the data and training loop of the model; return the better of two runs.

    Each baseline is trained with two learning rates. The second training is stopped once its validation loss is worse
    than that of the first after as many samples. A baseline of the model's own family is left out, because the search
    covers it. Baselines beyond a limit are left out, too.

    Args:
        run: Context of the run.
        ended: Condition that ends the baselines, in addition to the limits; None if there is none.
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
    """Train gradient-boosted trees for comparison, if requested and within the limits; see `train_baselines`."""
    if TREES not in baselines_of(run.request) or (run.within(ended) if ended else run).baseline_stop.check():
        return []
    trees = train_trees(run.dataset, run.directory / "baselines" / TREES, seed=run.request.seed)
    return [trees] if trees else []


def candidates_of(
    members: Sequence[TrainedModel], baselines: Sequence[TrainedBaseline], request: TrainRequest
) -> list[TrainedModel]:
    """Return the models to combine: members and baselines, or the best of them if a single model is requested."""
    candidates = [*members, *(baseline.model for baseline in baselines)]
    if request.ensemble.most > 1:
        return candidates
    return [_best(candidates, request)]


def baseline_spec(family: str, features: Features, table_precision: TablePrecision = "fp32") -> ModelSpec:
    """Return the default architecture of a family, with embedding rows that are wide enough for a weight of each label.

    Numeric features are binned as in the first trial of a search.
    """
    default = model_spec(family)
    least = 4 * -(-(features.outputs + (0 if family == "lr" else 4)) // 4)
    width = max(default.embedding_dim, least)
    bins = FIRST_BINS if features.dense else 0
    return replace(default, embedding_dim=width, table_precision=table_precision, numeric_bins=bins)


def baseline_epochs(dataset: Dataset, max_epochs: int) -> int:
    """Return the maximum number of epochs: as many as `MOST_SAMPLES` allows, at least 1 and at most `max_epochs`."""
    return max(1, min(max_epochs, MOST_SAMPLES // max(1, dataset.splits["train"].rows)))


def baseline_checks(dataset: Dataset) -> tuple[float, ...]:
    """Return the shares of the first epoch after which the rates are compared; empty if an epoch is short."""
    rows = dataset.splits["train"].rows
    return tuple(share for share in CHECKS if share * rows >= LEAST_SAMPLES)


def _best(trained: Sequence[TrainedModel], request: TrainRequest) -> TrainedModel:
    select_by = request.training.select_by.value
    return min(trained, key=lambda one: one.validation.loss_by(select_by))


def _train(run: RunContext, family: str, learning_rate: float, race: Race) -> TrainedModel:
    request = run.request
    precision = "fp16" if HALF_TABLES.value in request.architecture.set else "fp32"
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
