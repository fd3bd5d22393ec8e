"""The steps. One folder is one step: its `__init__` exports the Prefect task, the files beside it do the work."""

import sys

from shunter.ingestion.sources.guard import restrict_where
from shunter.secrets import hide_in_logs


def _came_through_a_deployment() -> bool:
    """Whether whoever may reach Prefect's server wrote the request, in its UI, by its API or for a schedule."""
    if "prefect" not in sys.modules:  # what runs a deployment has imported it; a command asks before that
        return False
    from prefect.runtime import deployment

    return deployment.id is not None


restrict_where(_came_through_a_deployment)
hide_in_logs()
