"""Zeros in a job's activations and gradients, as measured by `shunter profile --data`."""

from shunter.errors import TrackingError
from shunter.planner.history.reader import ReadRuns
from shunter.tracking.convention import BACKWARD_SPEEDUP
from shunter.tracking.history import read_runs


def backward_speedups(data_name: str, family: str, *, read: ReadRuns = read_runs) -> dict[str, float]:
    """Return the simulated speed-ups of a job's backward products, by kind of zero skipping, from its newest profile.

    Args:
        data_name: Name of the data set.
        family: Model family.
        read: Reader of the store.

    Returns:
        Empty if the job was not profiled or the store does not answer.
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
