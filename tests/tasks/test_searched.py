"""What is known of a search before it begins: how dear the settings are that it will try."""

from pathlib import Path
from typing import ClassVar

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.models.registry import model_spec
from shunter.planner.choose import choose
from shunter.planner.describe import describe
from shunter.requests import JobRequest, SearchSpaceName, TrainRequest
from shunter.search.space.learning import FIRST_BINS
from shunter.search.space.settings import SearchSpace
from shunter.tasks.select import MOST, drawn_specs, searched_workloads
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile


class WithoutSearch(JobRequest, frozen=True):
    searches: ClassVar[bool] = False


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=20_000)


def test_the_points_that_a_search_begins_with_come_first_then_others_by_the_seed(dataset: Dataset) -> None:
    space = SearchSpace.for_dataset(dataset)
    begins = [space.build(point)[0] for point in space.defaults()]
    assert drawn_specs(space, 1, 0) == begins[:1]
    assert drawn_specs(space, 5, 0)[: len(begins)] == begins[:5]
    assert drawn_specs(space, 5, 0) == drawn_specs(space, 5, 0)
    assert drawn_specs(space, 5, 0) != drawn_specs(space, 5, 1)
    assert len(drawn_specs(space, 100, 0)) == MOST


def test_only_a_search_by_trials_is_told_beforehand(dataset: Dataset) -> None:
    begun = model_spec(numeric_bins=FIRST_BINS)
    assert searched_workloads(dataset, TrainRequest(trials=1)) == [describe(dataset, begun)]
    assert len(searched_workloads(dataset, TrainRequest(trials=3))) == 3
    for request in (
        TrainRequest(search_minutes=1.0, trials=None),
        TrainRequest(model="lightgcn"),
        TrainRequest(search_space=SearchSpaceName.ARCHITECTURE),
        WithoutSearch(),
    ):
        assert searched_workloads(dataset, request) == []


def test_a_search_of_heavier_settings_takes_longer_and_says_so(dataset: Dataset, tmp_path: Path) -> None:
    request, profiles = TrainRequest(parallel_trials=1), [make_profile(cores=2)]
    heavy = describe(dataset, model_spec(top_widths=(1024, 1024)))
    light = choose(dataset, request, profiles, probe_seconds=0)
    dear = choose(dataset, request, profiles, probe_seconds=0, searched=[light.workload or heavy, heavy])
    share = dear.chosen.candidate.searched_share
    assert share > 1.5
    assert dear.hours == pytest.approx(min(row.hours for row in dear.table))
    same = next(row for row in light.table if row.candidate.placement == dear.placement)
    assert dear.hours == pytest.approx(share * same.hours)
    assert f"of settings that take {share:.2g} times what the default does" in dear.reason
    assert "of settings" not in light.reason
