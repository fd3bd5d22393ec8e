"""Step `baselines`: models that train within seconds, with which later models are compared."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from shunter.engine.checkpoint.checked_files import CHOICES, read_json, write_json
from shunter.engine.config import Schedule, SelectBy
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.results import EpochReport
from shunter.engine.stopping import ShouldStop, StopKind, StopReason
from shunter.engine.trained_model import TrainedModel
from shunter.errors import CheckpointError
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.models.spec import Features, ModelSpec, TablePrecision
from shunter.reporting.card.baselines import Rival, TrainedBaseline
from shunter.requests import HALF_TABLES, TREES, TrainRequest, baselines_of
from shunter.search.space.learning import FIRST_BINS, default_hyperparameters, weights_of_tasks
from shunter.tasks.baselines.kept import UNTIMED_ENDS, BaselineChoice, digest_key, folder_of, keep, key_of, reuse
from shunter.tasks.baselines.trees import train_trees
from shunter.tasks.run_context import RunContext
from shunter.tasks.train import train_member
from shunter.tasks.training_plans import placement_of_one

__all__ = ["baseline_epochs", "baseline_spec", "candidates_of", "train_baselines", "train_rivals"]

# Embedding learning rates; the better one on the validation part is used. The best rates of logs with few and with many
# rows per id differ by about this factor.
LEARNING_RATES = (0.02, 0.2)
MOST_SAMPLES = 5_000_000  # of one training run, so that it takes seconds
PATIENCE = 2  # epochs without an improvement on validation
# Shares of the first epoch after which the two rates are compared and the worse one is stopped. With fewer samples the
# comparison is dominated by chance.
CHECKS = (1 / 8, 1 / 2)
LEAST_SAMPLES = 100_000


class RateComparison:
    """Comparison of two training runs of different learning rates by their validation loss after equal samples.

    The losses of the first training run are kept in a file, so that a resumed run decides as an uninterrupted one.
    """

    def __init__(self, path: Path, select_by: SelectBy, least_samples: int) -> None:
        self.lost: StopReason | None = None
        self._path, self._least_samples = path, least_samples
        self._select_by: SelectBy = select_by
        self._losses: dict[str, float] = {}
        with suppress(CheckpointError, TypeError, ValueError):
            self._losses = {samples: float(loss) for samples, loss in read_json(path).items()}

    def lead(self, report: EpochReport) -> None:
        """Record a validation loss of the first training run."""
        self._losses[str(report.samples_seen)] = report.validation.loss_by(self._select_by)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, json.dumps(self._losses))

    def compare(self, report: EpochReport) -> None:
        """Compare a validation loss of the second training run; set `lost` if it is worse than that of the first."""
        first = self._losses.get(str(report.samples_seen))
        second = report.validation.loss_by(self._select_by)
        if first is not None and report.samples_seen >= self._least_samples and second > first:
            self.lost = StopReason(StopKind.PRUNED, details={"samples": float(report.samples_seen)})


def train_baselines(run: RunContext, ended: ShouldStop | None = None) -> list[TrainedBaseline]:
    """Train each requested baseline with the data and training loop of the model, at two learning rates.

    The better of the two training runs is the baseline. The second run is stopped when its validation loss is worse
    than that of the first run after the same number of samples. A baseline that an earlier run has trained on the same
    data, with the same settings and code, is reused. A baseline of the model's own family is left out, because the
    search covers it. Baselines that a limit does not permit are left out, too.

    Args:
        run: Context of the run.
        ended: Condition that ends the baselines, in addition to the limits; None if there is none.
    """
    run = run.within(ended) if ended else run
    families = [name for name in baselines_of(run.request) if name not in (run.request.model, TREES)]
    return [found for family in families if (found := _baseline(run, family)) is not None]


def train_rivals(run: RunContext, ended: ShouldStop | None = None) -> list[Rival]:
    """Train gradient-boosted trees for comparison, if requested and within the limits; see `train_baselines`."""
    if TREES not in baselines_of(run.request) or (run.within(ended) if ended else run).baseline_stop.check():
        return []
    seed = run.request.seed
    folder = folder_of(digest_key(run.dataset.fingerprint, TREES, seed, version("scikit-learn")))
    trees = train_trees(run.dataset, folder, seed=seed)
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
    """Return the default architecture of a family, with embeddings wide enough for a linear weight for each label.

    Numeric features are binned as in the first trial of a search.
    """
    default = model_spec(family)
    least = 4 * -(-(features.outputs + (0 if family == "lr" else 4)) // 4)
    width = max(default.embedding_dim, least)
    bins = FIRST_BINS if features.dense else 0
    return replace(default, embedding_dim=width, table_precision=table_precision, numeric_bins=bins)


def baseline_epochs(dataset: Dataset, max_epochs: int) -> int:
    """Return the maximum number of epochs: as many as `MOST_SAMPLES` permits, at least 1 and at most `max_epochs`."""
    return max(1, min(max_epochs, MOST_SAMPLES // max(1, dataset.splits["train"].rows)))


def baseline_checks(dataset: Dataset) -> tuple[float, ...]:
    """Return the shares of the first epoch after which learning rates are compared; empty if an epoch is short."""
    rows = dataset.splits["train"].rows
    return tuple(share for share in CHECKS if share * rows >= LEAST_SAMPLES)


def _best(trained: Sequence[TrainedModel], request: TrainRequest) -> TrainedModel:
    select_by = request.training.select_by.value
    return min(trained, key=lambda one: one.validation.loss_by(select_by))


def _baseline(run: RunContext, family: str) -> TrainedBaseline | None:
    """Return the stored baseline of a family, or train and store it; None if a limit leaves no time."""
    choice_path = run.directory / "baselines" / f"{family}{CHOICES.removeprefix('*')}"
    choice = BaselineChoice.read(choice_path)
    key = key_of(_jobs(run, family, run.decision.placement))
    stored = reuse(key, TrainedBaseline) if choice is None or choice.reused_of is not None else None
    if stored is not None and (choice is None or choice.reused_of == stored.model.placement):
        BaselineChoice(reused_of=stored.model.placement).save(choice_path)
        return stored
    if run.baseline_stop.check():
        return None
    choice = choice or BaselineChoice()
    choice.save(choice_path)
    placement = choice.reused_of or placement_of_one(run, _spec(run, family))
    jobs = _jobs(run, family, placement)
    trained: list[TrainedModel] = []
    comparison = RateComparison(
        choice_path.with_name(f"{family}.json"), run.request.training.select_by.value, LEAST_SAMPLES
    )
    for job in jobs:
        if trained and run.baseline_stop.check():
            break
        trained.append(_train(run, job, placement, comparison))
    joules = [one.energy.joules for one in trained if one.energy.joules is not None]
    found = TrainedBaseline(
        model=_best(trained, run.request).model_copy(update={"name": family}),
        train_seconds=sum(one.train_seconds for one in trained),
        joules=sum(joules) if len(joules) == len(trained) else None,
    )
    if len(trained) == len(jobs) and all(one.stop_reason.kind in UNTIMED_ENDS for one in trained):
        keep(key, found, run.dataset)
    return found


def _spec(run: RunContext, family: str) -> ModelSpec:
    precision = "fp16" if HALF_TABLES.value in run.request.architecture.set else "fp32"
    return baseline_spec(family, run.dataset.features, precision)


def _jobs(run: RunContext, family: str, placement: Placement) -> list[ClickJob]:
    """Return the training runs of a baseline, one for each learning rate."""
    request, dataset = run.request, run.dataset
    schedule = Schedule(
        max_epochs=baseline_epochs(dataset, request.longest_epochs),
        patience=PATIENCE,
        seed=request.seed,
        select_by=request.training.select_by.value,
        checks=baseline_checks(dataset),
    )
    weights = weights_of_tasks(request.training.task_weights, dataset.features.tasks)
    default = replace(default_hyperparameters(family), task_weights=weights)
    rates = [replace(default, embedding_learning_rate=rate) for rate in LEARNING_RATES]
    spec = _spec(run, family)
    return [TrainingJob(dataset, spec, rate, execution_of(placement), schedule) for rate in rates]


def _train(run: RunContext, job: ClickJob, placement: Placement, comparison: RateComparison) -> TrainedModel:
    rate = job.hyperparameters.embedding_learning_rate
    name = f"{job.spec.family}-rate-{rate:g}"
    is_first = rate == LEARNING_RATES[0]
    return train_member(
        job,
        placement,
        run.directory / "baselines" / name,
        name=name,
        parent_run_id=run.run_id,
        run_kind="baseline",
        should_stop=run.baseline_stop.check if is_first else lambda: comparison.lost or run.baseline_stop.check(),
        place=run.cluster,
        checkpoints=run.checkpoints,
        watch=comparison.lead if is_first else comparison.compare,
    )
