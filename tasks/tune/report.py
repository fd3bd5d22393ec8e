"""Shows the progress of a search to whoever looks at the flow run."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.tune.search import Progress

KEY = "tune"


@contextlib.contextmanager
def trial_progress() -> Iterator["Callable[[Progress], None] | None"]:
    """A progress bar among the artifacts of the running flow; None outside of a flow."""
    from prefect.artifacts import create_progress_artifact, update_progress_artifact
    from prefect.runtime import flow_run

    if flow_run.id is None:
        yield None
        return
    artifact = create_progress_artifact(0.0, key=KEY, description="Trials of the search.")

    def on_trial(progress: "Progress") -> None:
        best = "" if progress.best_ne is None else f", lowest validation NE {progress.best_ne:.4f}"
        update_progress_artifact(
            artifact,  # pyright: ignore[reportArgumentType] - typed as a coroutine too, which it is only in async code
            progress=100.0 * progress.done / progress.trials,
            description=f"{progress.done} of {progress.trials} trials{best}.",
        )

    yield on_trial
