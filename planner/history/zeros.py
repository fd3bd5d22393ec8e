"""What `shunter profile --data` has found of the zeros of a job's activations and gradients."""

from shunter.errors import TrackingError
from shunter.planner.history.reader import ReadRuns
from shunter.tracking.convention import BACKWARD_SPEEDUP
from shunter.tracking.history import read_runs


def backward_speedups(data_name: str, family: str, *, read: ReadRuns = read_runs) -> dict[str, float]:
    """Simulated speed-ups of the backward products, by what an accelerator skips, of the newest profile of a job.

    Args:
        data_name: Name of the data set.
        family: Model family.
        read: Store of the runs.

    Returns:
        Nothing where the job was not profiled, or the store does not answer.
    """
    try:
        runs = read(("profile",), limit=50)
    except TrackingError:
        return {}
    for run in runs:
        if (run.params.get("data.name"), run.params.get("model.family")) != (data_name, family):
            continue
        found = {
            name.removeprefix(BACKWARD_SPEEDUP): value
            for name, value in run.metrics.items()
            if name.startswith(BACKWARD_SPEEDUP) and value > 0
        }
        if found:
            return found
    return {}
