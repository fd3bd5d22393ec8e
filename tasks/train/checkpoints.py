"""Translation of the checkpoint options of a request into those of the engine."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shunter.engine.checkpoint.checked_files import CHOICES
from shunter.engine.checkpoint.keeping import POLICIES, Keeping, stored_bits
from shunter.engine.job import Checkpointing, TrainingJob
from shunter.models.embeddings.role import EmbeddingTables
from shunter.planner.predict.observe import Expectation
from shunter.requests import CheckpointRequest
from shunter.tracking.convention import TRAINING_METRICS
from shunter.tracking.history import TrackedRun, read_runs

# Quantile of the number of interruptions that the checkpoints are planned for: .9 means that 90 % of training runs as
# long as this one have no more.
RESTORES_QUANTILE = 0.9
RESTORES, SECONDS = "checkpoint.restores", TRAINING_METRICS["train_seconds"]


def checkpointing_of(
    request: CheckpointRequest, directory: Path, job: TrainingJob[Any, Any, Any], expected: Expectation | None
) -> Checkpointing:
    """Return where, how often and how the checkpoints of a training run are written.

    Args:
        request: Options of the checkpoints.
        directory: Folder of this training run alone.
        job: Training job.
        expected: Expected duration of the training; None if unknown.
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
    """Return the expected number of interruptions of a training run, from the rate of past training runs.

    Interruptions are modelled as a Poisson process. Half an interruption is added to the observed ones, because a short
    history without any says little. The result is the `RESTORES_QUANTILE`, or 1 without a history or an expected
    duration.

    Args:
        job: Training job.
        expected: Expected duration of the training.
        past: Past training runs.
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
    """Return the bytes of the tables that checkpoints store apart, with optimizer state; 0 for a graph model."""
    if not hasattr(job.spec, "tables"):
        return 0
    counted = EmbeddingTables.count_bytes(job.spec.tables(job.dataset.features))
    return counted.weights + counted.optimizer


def remove_but_choices(folder: Path) -> None:
    """Remove the state of a finished training run, except for the choices by which it was computed."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif not path.match(CHOICES):
            path.unlink()
