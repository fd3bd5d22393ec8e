"""Steps of the flows. Each folder is a step: its `__init__` exports the Prefect task, its other files do the work."""

import sys

from shunter.ingestion.sources.guard import restrict_where
from shunter.secrets import hide_in_logs


def _came_through_a_deployment() -> bool:
    """Return True if a Prefect deployment started this run: anybody with access to Prefect may have written it."""
    if "prefect" not in sys.modules:  # a deployment's run has imported Prefect before; a command has not
        return False
    from prefect.runtime import deployment

    return deployment.id is not None


restrict_where(_came_through_a_deployment)
hide_in_logs()
