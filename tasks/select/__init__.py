"""Step `select`: which placement keeps the limits and needs least of the objective, and why."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.dataset import Dataset
from hardware.types import HardwareProfile
from tasks.request import TrainRequest
from tasks.select.choose import choose
from tasks.select.decide import Assessment, Candidate, Decision, Miss, decide
from tasks.select.describe import JobSize, describe, job_size
from tasks.select.report import publish

__all__ = [
    "Assessment",
    "Candidate",
    "Decision",
    "JobSize",
    "Miss",
    "choose",
    "decide",
    "describe",
    "job_size",
    "select",
]


@task(name="select", cache_policy=NO_CACHE)
def select(dataset: Dataset, request: TrainRequest, profiles: Sequence[HardwareProfile]) -> Decision:
    """Choose the placement of this training, and show the table of all candidates in the Prefect UI."""
    decision = choose(dataset, request, profiles)
    publish(decision)
    return decision
