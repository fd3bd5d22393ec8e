"""A search over towers learns them once, tries every way that is left open, and says what it found."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from pydantic import ValidationError

from shunter.engine.data.dataset import Dataset
from shunter.errors import RequestError
from shunter.extensions.towers.partitions import FILE, tower_partitions
from shunter.hardware.types import Placement
from shunter.model_families import MODEL_FAMILIES
from shunter.requests import TowerStrategy, TrainRequest
from shunter.search.job import SearchJob
from shunter.search.search import search
from shunter.search.space.settings import SearchSpace
from shunter.tracking.runs import open_run
from shunter.tracking.store import tracking_uri

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
NAMES = ("single0", "single1", "single2", "bag0")


def test_towers_are_learned_once_and_tried_in_every_way(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    request = TrainRequest(model="dmt", towers=2, trials=2, max_epochs=1)
    result = search(
        SearchJob(dataset=dataset, request=request, placement=PLACEMENT, directory=tmp_path, parent_run_id=parent)
    )
    run = open_run(parent)
    found = tower_partitions(dataset, request, PLACEMENT, tmp_path, run)  # from the file
    assert list(found) == ["coherent", "diverse", "order"]
    for fields in found.values():
        assert sorted(name for tower in fields for name in tower) == sorted(NAMES)
    assert found["order"] == (("single0", "single1"), ("single2", "bag0"))
    first = next(setting for setting in result.settings if setting.trial_number == 0)
    assert first.spec.to_dict()["tower_fields"] == found["coherent"]
    assert all(setting.spec.to_dict()["tower_fields"] in found.values() for setting in result.settings)
    tags = MlflowClient(tracking_uri()).get_run(parent).data.tags
    assert all(name in tags["towers.coherent"] for name in NAMES)
    assert "mean interaction" in tags["towers.diverse"]


@pytest.mark.parametrize("way", ["order", "diverse"])
def test_one_way_is_not_searched(dataset: Dataset, parent: str, tmp_path: Path, way: str) -> None:
    request = TrainRequest(model="dmt", towers=2, tower_partition=TowerStrategy(way))
    found = tower_partitions(dataset, request, PLACEMENT, tmp_path, open_run(parent))
    assert list(found) == [way]
    assert (tmp_path / FILE).exists() == (way != "order"), "the order of the data needs no training"
    space = SearchSpace.for_dataset(dataset, "dmt").model_copy(update={"tower_partitions": found})
    assert space.build(space.default())[0].to_dict()["tower_fields"] == found[way]


def test_other_families_and_single_towers_learn_nothing(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    run = open_run(parent)
    assert MODEL_FAMILIES.load_part(TrainRequest().model, "field_partitions") is None
    for towers in (1, 4):
        request = TrainRequest(model="dmt", towers=towers)
        assert list(tower_partitions(dataset, request, PLACEMENT, tmp_path, run)) == ["order"]
    assert not (tmp_path / FILE).exists()


def test_towers_that_cannot_be_are_refused(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="4 categorical fields cannot be divided into 5 towers: use 1 to 4"):
        tower_partitions(dataset, TrainRequest(model="dmt", towers=5), PLACEMENT, tmp_path, open_run(parent))
    with pytest.raises(ValidationError, match="towers"):
        TrainRequest(model="dmt", towers=0)
