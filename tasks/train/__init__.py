"""Step `train`: one model trained to the end, on the chosen placement."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.executors.adaptation import Adaptation
from shunter.engine.executors.role import Place
from shunter.engine.job import TrainingJob
from shunter.engine.stopping import ShouldStop
from shunter.hardware.types import Placement
from shunter.planner.predict.observe import Expectation
from shunter.requests import CheckpointRequest
from shunter.tasks.retries import retried
from shunter.tasks.train.adopted import adopt_trial
from shunter.tasks.train.member import AS_USUAL, train_to_the_end
from shunter.tracking.convention import RunKind

__all__ = ["adopt_trial", "train_member", "train_to_the_end"]


# Tried again, it goes on from its checkpoint.
@task(name="train", task_run_name="train-{name}", cache_policy=NO_CACHE, **retried())
def train_member(
    job: TrainingJob[Any, Any, Any],
    placement: Placement,
    directory: Path,
    *,
    name: str = "member-0",
    parent_run_id: str | None = None,
    run_kind: RunKind = "member",
    should_stop: ShouldStop | None = None,
    adaptation: Adaptation | None = None,
    checkpoints: CheckpointRequest = AS_USUAL,
    place: Place | None = None,
    expected: Expectation | None = None,
    watch: Callable[[Any], None] | None = None,
) -> Any:
    """Train one model to the end, or on from where it stopped; a finished one is returned at once.

    Returns:
        A `TrainedModel`, or of a graph model a `TrainedRanker`.
    """
    return train_to_the_end(
        job,
        placement,
        directory,
        name=name,
        parent_run_id=parent_run_id,
        run_kind=run_kind,
        should_stop=should_stop,
        adaptation=adaptation,
        checkpoints=checkpoints,
        place=place,
        expected=expected,
        watch=watch,
    )
