"""From what a request says about checkpoints to how the engine keeps them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shunter.engine.checkpoint.growth import POLICIES
from shunter.engine.checkpoint.keeping import Keeping, stored_bits
from shunter.engine.checkpoint.storage import CHOICES
from shunter.engine.job import Checkpointing, TrainingJob
from shunter.models.embeddings.role import EmbeddingTables
from shunter.planner.predict.observe import Expectation
from shunter.requests import CheckpointRequest
from shunter.tracking.convention import TRAINING_METRICS
from shunter.tracking.history import TrackedRun, read_runs

# Of the trainings as long as this one, as many in a hundred are interrupted no more often than is reckoned with.
RESTORES_QUANTILE = 0.9
RESTORES, SECONDS = "checkpoint.restores", TRAINING_METRICS["train_seconds"]


def checkpointing_of(
    request: CheckpointRequest, directory: Path, job: TrainingJob[Any, Any, Any], expected: Expectation | None
) -> Checkpointing:
    """Where, how often and how the state of one training is kept.

    Args:
        request: The options.
        directory: Folder of this training alone.
        job: The training.
        expected: What it is expected to take; None where nobody can say.
    """
    bits = stored_bits(request.checkpoint_bits.value)
    hangs_on_restores = Keeping(bits=bits).hangs_on_restores(_table_bytes(job))
    return Checkpointing(
        directory,
        seconds=60 * request.checkpoint_minutes,
        keeping=Keeping(
            bits=bits,
            policy=next(policy for policy in POLICIES if policy == request.checkpoint_policy),
            generations=request.keep_checkpoints,
            expected_restores=expected_restores(job, expected, read_runs(("member",))) if hangs_on_restores else 1.0,
            bytes_per_second=None if request.checkpoint_rate is None else request.checkpoint_rate * 2**20,
            copied_to=request.checkpoint_copy,
        ),
    )


def expected_restores(
    job: TrainingJob[Any, Any, Any], expected: Expectation | None, past: Sequence[TrackedRun]
) -> float:
    """How often a training is expected to be interrupted, by how often past ones were in an hour.

    Interruptions are taken to come by chance and independently (Poisson); with half of one added to those that were
    seen, for a short past without any says little. Without a past, or an expected duration, it is one.

    Args:
        job: The training.
        expected: What it is expected to take.
        past: Trainings that were tracked.
    """
    from scipy.stats import poisson

    counted = [run.metrics for run in past if {RESTORES, SECONDS} <= run.metrics.keys()]
    seconds = sum(metrics[SECONDS] for metrics in counted)
    if not seconds or expected is None:
        return 1.0
    steps = job.schedule.max_epochs * math.ceil(job.dataset.splits["train"].rows / job.execution.batch_size)
    rate = (sum(metrics[RESTORES] for metrics in counted) + 0.5) / seconds
    return float(poisson.ppf(RESTORES_QUANTILE, rate * steps * expected.prediction.step_seconds))


def _table_bytes(job: TrainingJob[Any, Any, Any]) -> int:
    """Bytes of the tables that checkpoints keep apart, and of their optimiser's state; a graph model has none."""
    if not hasattr(job.spec, "tables"):
        return 0
    counted = EmbeddingTables.count_bytes(job.spec.tables(job.dataset.features))
    return counted.weights + counted.optimizer


def remove_but_choices(folder: Path) -> None:
    """Remove the state of a finished training but for the choices by which it was computed."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif not path.match(CHOICES):
            path.unlink()
