"""Step `select`: which placement keeps the limits and needs least of the objective, and why."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.dataset import Dataset
from hardware.types import HardwareProfile
from tasks.request import LOCAL_OFFERS, JobRequest
from tasks.select.assessment import Assessment, Candidate, Miss
from tasks.select.choose import PROBE_SECONDS, Take, choose
from tasks.select.decide import Decision, NoFeasiblePlacementError, decide
from tasks.select.describe import JobSize, describe, job_size
from tasks.select.figures import figure_cells
from tasks.select.history import read_history
from tasks.select.observe import expected_step, step_observation
from tasks.select.probe import Measurement, measure
from tasks.select.report import publish
from tasks.select.second_decision import alternatives, redecide
from tasks.select.totals import affordable_seconds

__all__ = [
    "Assessment",
    "Candidate",
    "Decision",
    "JobSize",
    "Measurement",
    "Miss",
    "NoFeasiblePlacementError",
    "affordable_seconds",
    "alternatives",
    "choose",
    "decide",
    "describe",
    "expected_step",
    "figure_cells",
    "job_size",
    "measure",
    "redecide",
    "select",
    "step_observation",
]


@task(name="select", cache_policy=NO_CACHE)
def select(
    dataset: Dataset,
    request: JobRequest,
    profiles: Sequence[HardwareProfile],
    *,
    offers: str = LOCAL_OFFERS,
    probe_seconds: float = PROBE_SECONDS,
    take: Take = measure,
) -> Decision:
    """Choose the placement of this training, and show the table of all candidates in the Prefect UI."""
    decision = choose(
        dataset,
        request,
        profiles,
        offers=offers,
        probe_seconds=probe_seconds,
        history=read_history(),
        take=take,
    )
    publish(decision)
    return decision
