"""Several labels in the search: their weights and towers."""

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from shunter.errors import RequestError
from shunter.requests import TrainRequest
from shunter.search.space.learning import weights_of_tasks
from shunter.search.space.settings import SearchSpace
from tests.engine.synthetic import write_dataset

TASKS = ("click", "conversion", "like")


def test_weights_follow_the_order_of_the_labels() -> None:
    assert weights_of_tasks("like=0, click=2", TASKS) == (2.0, 1.0, 0.0)
    assert weights_of_tasks(None, TASKS) == ()


@pytest.mark.parametrize(
    ("tasks", "message"), [(TASKS, "'convertion': use 'conversion'"), ((), "has one label only, so leave")]
)
def test_a_weight_of_an_unknown_label_is_answered(tasks: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        weights_of_tasks("convertion=1", tasks)


@pytest.mark.parametrize("text", ["click", "click=a", "click=-1", "click=nan", "=1", "click=1,click=2", ""])
def test_weights_that_are_none_are_refused_with_the_request(text: str) -> None:
    with pytest.raises(ValidationError, match="is not a label with a weight"):
        TrainRequest(task_weights=text)


def test_towers_are_searched_where_there_are_several_labels(tmp_path: Path) -> None:
    plain = write_dataset(tmp_path, rows=200)
    several = replace(plain, features=replace(plain.features, tasks=TASKS))
    assert "task_tower_width" not in SearchSpace.for_dataset(plain).options
    assert "task_weights" not in SearchSpace.for_dataset(plain).model_dump()
    space = SearchSpace.for_dataset(several, "dcnv2", (1.0, 0.5, 0.0))
    assert "task_tower_width" in space.options
    spec, hyperparameters = space.build({**space.default(), "task_tower_width": 32})
    assert spec.task_tower_width == 32
    assert hyperparameters.task_weights == (1.0, 0.5, 0.0)
