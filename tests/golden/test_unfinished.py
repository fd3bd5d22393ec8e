"""What was interrupted before the move goes on after it, and ends as if it had never been interrupted."""

from pathlib import Path

import pytest

from tests.golden import searches, trainings, unfinished
from tests.golden.recorded import assert_as_recorded, is_rounded_alike

pytestmark = pytest.mark.usefixtures("warm_processes")


def test_an_interrupted_training_ends_with_the_recorded_weights(tmp_path: Path) -> None:
    assert_as_recorded(
        trainings.FILE, unfinished.CHECKPOINT_CASE, unfinished.resumed_training(tmp_path), began_elsewhere=True
    )


def test_an_interrupted_training_of_a_graph_model_ends_with_the_recorded_weights(tmp_path: Path) -> None:
    assert_as_recorded(
        trainings.FILE, unfinished.RANKING_CASE, unfinished.resumed_ranking(tmp_path), began_elsewhere=True
    )


@pytest.mark.slow
def test_an_interrupted_training_of_two_processes_ends_with_the_recorded_weights(tmp_path: Path) -> None:
    assert_as_recorded(
        trainings.FILE, unfinished.SHARDED_CASE, unfinished.resumed_together(tmp_path), began_elsewhere=True
    )


@pytest.mark.slow
def test_a_search_goes_on_with_the_trials_that_are_left(tmp_path: Path) -> None:
    found = unfinished.resumed_search(tmp_path)
    assert len(found["tried"]) == searches.CASES[unfinished.SEARCH_CASE].search.trials
    if is_rounded_alike(searches.FILE):
        assert_as_recorded(searches.FILE, unfinished.SEARCH_CASE, found, began_elsewhere=True)
