"""Members of past champions beside the one that was trained now."""

from shunter.engine.execution import execution_of
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.requests import EnsembleOf
from shunter.retraining.past_champions import past_champions
from shunter.tasks.run_context import RunContext
from shunter.tracking.runs import open_run


def champions_before(run: RunContext, placement: Placement) -> list[TrainedModel]:
    """The members of the champions that `--register-as` has had on the same data; empty where they are not asked for.

    Which versions they are of, and which are left out, is a tag of the run.

    Raises:
        TrackingError: The store cannot be read.
    """
    if run.request.ensemble.ensemble_of is not EnsembleOf.CHAMPIONS:
        return []
    found = past_champions(
        run.request.register_as, run.dataset, placement, execution_of(placement), run.directory / "champions"
    )
    open_run(run.run_id).set_tags({"ensemble.champions": found.words})
    return found.members
