"""Parallel trials repeat, whichever of them is faster."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.role import Executor
from shunter.requests import TrainRequest
from shunter.search.job import SearchJob
from shunter.search.protocol import Outcome, Parameters
from shunter.search.search import search
from shunter.search.study.trial import TrialContext, TrialEnd
from tests.search.spaces import search_job


def points_of_search(
    seconds: Callable[[int], float], job: SearchJob, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Parameters], list[frozenset[int]]]:
    """Return the points and peers of all trials by number, if trial `n` takes `seconds(n)`."""
    points, peers = dict[int, Parameters](), dict[int, frozenset[int]]()

    def trained(trial: object, parameters: Parameters, context: TrialContext, executor: Executor) -> TrialEnd:
        number = trial.number  # type: ignore[attr-defined]
        points[number], peers[number] = parameters, context.peers
        time.sleep(seconds(number))
        loss = 0.5 + abs(float(str(hash(frozenset(parameters.items())) % 97))) / 1000
        return TrialEnd(Outcome(state="complete", validation_ne=loss, seconds=1.0))

    monkeypatch.setattr("shunter.search.study.loop.run_trial", trained)
    search(job)
    return [points[number] for number in sorted(points)], [peers[number] for number in sorted(peers)]


def test_a_search_that_a_clock_may_end_waits_for_no_round(
    dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = search_job(
        dataset, TrainRequest(trials=4, search_minutes=5, max_epochs=1, parallel_trials=2), tmp_path, parent
    )
    points, peers = points_of_search(lambda number: 0.05 * (number == 0), job, monkeypatch)
    assert (len(points), set(peers)) == (4, {frozenset()})


@pytest.mark.parametrize("trials", [1, 5])
def test_points_do_not_depend_on_which_trial_is_faster(
    trials: int, dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = TrainRequest(trials=trials, max_epochs=1, parallel_trials=2)

    def searched(name: str, seconds: Sequence[float]) -> tuple[list[Parameters], list[frozenset[int]]]:
        job = search_job(dataset, request, tmp_path / name, parent)
        return points_of_search(lambda number: seconds[number % 2], job, monkeypatch)

    first, peers = searched("first", (0.0, 0.05))
    second, _ = searched("second", (0.05, 0.0))
    assert first == second
    rounds = [frozenset(range(start, min(start + 2, trials))) for start in range(0, trials, 2)]
    assert peers == [one if len(one) > 1 else frozenset() for one in rounds for _ in one]
