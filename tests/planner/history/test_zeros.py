"""Which profile tells of a job's zeros."""

from collections.abc import Sequence

from shunter.errors import TrackingError
from shunter.planner.history.zeros import backward_speedups
from shunter.tracking.history import TrackedRun
from tests.planner.history.test_reader import tracked


def profiled(run_id: str, data: str, family: str, both: float | None) -> TrackedRun:
    metrics = {} if both is None else {"sparsity.simulated_backward_speedup_both": both}
    return tracked(run_id, "profile", params={"data.name": data, "model.family": family}, metrics=metrics)


def test_the_newest_profile_of_data_and_model_tells() -> None:
    runs = [
        profiled("other data", "frappe", "dlrm", 9.0),
        profiled("of before zeros were counted", "criteo", "dlrm", None),
        profiled("newest", "criteo", "dlrm", 3.0),
        profiled("older", "criteo", "dlrm", 2.0),
    ]

    def read(kinds: Sequence[str], *, limit: int) -> list[TrackedRun]:
        assert kinds == ("profile",)
        return runs[:limit]

    assert backward_speedups("criteo", "dlrm", read=read) == {"both": 3.0}
    assert backward_speedups("criteo", "dhen", read=read) == {}


def test_a_store_that_does_not_answer_tells_nothing() -> None:
    def read(kinds: Sequence[str], *, limit: int) -> list[TrackedRun]:
        raise TrackingError("gone")

    assert backward_speedups("criteo", "dlrm", read=read) == {}
