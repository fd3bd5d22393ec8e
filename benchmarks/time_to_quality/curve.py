"""What a run of Shunter has reached when, read from what it recorded: MLflow's metrics by epoch, with their times.

SHUNTER_HOME=... python -m benchmarks.time_to_quality.curve auc
"""

import json
import sys
from typing import Any

KINDS = ("trial", "member", "train")


def read_curve(quality: str) -> list[dict[str, Any]]:
    """Quality on the validation part by time of day, oldest first, of all trainings of the newest run.

    Args:
        quality: `auc` or `ndcg20`.
    """
    from shunter.tracking.history import read_children, read_runs
    from shunter.tracking.store import open_store

    [parent] = read_runs(("train",), limit=1)
    runs = [parent, *read_children(parent.run_id, "trial"), *read_children(parent.run_id, "member")]
    store = open_store().mlflow
    points = [
        {"time": point.timestamp / 1000, "quality": point.value}
        for run in runs
        for point in store.get_metric_history(run.run_id, f"quality.{quality}")
    ]
    return sorted(points, key=lambda point: point["time"])


if __name__ == "__main__":
    print(json.dumps({"points": read_curve(sys.argv[1])}))
