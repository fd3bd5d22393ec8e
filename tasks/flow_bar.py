"""Progress bar of a step in Prefect, as an artifact of the running flow."""

from typing import Any


class FlowBar:
    """Progress bar of a flow run in Prefect, created when it first moves; errors of the server are ignored.

    Args:
        key: Key of the artifact: small letters, digits and dashes.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._artifact: Any = None
        self._lost = False

    def move(self, share: float, description: str) -> None:
        """Show a share, from 0 to 1, and a description; do nothing outside of a flow."""
        from prefect.artifacts import create_progress_artifact, update_progress_artifact
        from prefect.runtime import flow_run

        if self._lost or (self._artifact is None and flow_run.id is None):  # threads of the flow do not know its id
            return
        try:
            if self._artifact is None:
                self._artifact = create_progress_artifact(100 * share, key=self._key, description=description)
            else:
                update_progress_artifact(self._artifact, progress=100 * share, description=description)
        except Exception:  # any error of Prefect's client: the step continues without the bar
            self._lost = True

    def end(self, description: str) -> None:
        """Set the progress bar of the flow to 100 %, if it was created."""
        if self._artifact is not None:
            self.move(1.0, description)
