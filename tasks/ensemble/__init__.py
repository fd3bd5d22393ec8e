"""Step `ensemble`: train and combine the members, keep the ensemble if it is better, and score the test part once."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.execution import execution_of
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.requests import EnsembleOf
from shunter.tasks.ensemble.combine import EnsembleLimits, combine_members
from shunter.tasks.ensemble.ending import UNTRAINED, expected_ending, minutes_as_text, reserve_ending
from shunter.tasks.ensemble.members import distil, scoring_placement, train_members, trainings_after
from shunter.tasks.ensemble.past_champions import past_champions
from shunter.tasks.run_context import RunContext
from shunter.tracking.runs import open_run

__all__ = [
    "UNTRAINED",
    "EnsembleLimits",
    "build_ensemble",
    "champions_before",
    "combine_members",
    "distil",
    "expected_ending",
    "minutes_as_text",
    "reserve_ending",
    "scoring_placement",
    "train_members",
    "trainings_after",
]

build_ensemble = task(name="ensemble", cache_policy=NO_CACHE)(combine_members)


def champions_before(run: RunContext, placement: Placement) -> list[TrainedModel]:
    """Return members of earlier champions (`--register-as`) that were trained on the same data; empty if not requested.

    A tag of the run lists the used and the omitted versions.

    Raises:
        TrackingError: The store cannot be read.
    """
    if run.request.ensemble.ensemble_of is not EnsembleOf.CHAMPIONS:
        return []
    found = past_champions(
        run.request.registered_name, run.dataset, placement, execution_of(placement), run.directory / "champions"
    )
    open_run(run.run_id).set_tags({"ensemble.champions": found.sentence})
    return found.members
