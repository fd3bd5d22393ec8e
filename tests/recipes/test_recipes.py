"""Every recipe is a request that can be read, and a model that can be built."""

from pathlib import Path

import pytest

from benchmarks.quality.data import FRAPPE_FIELDS, ML1M_FIELDS
from shunter.engine.overrides import check_overrides, read_overrides
from shunter.model_families import MODEL_FAMILIES, reads_positions
from shunter.models.spec import CategoricalFeature, Features
from shunter.requests import TrainRequest
from shunter.requests.job_file import read_job
from shunter.settings import PROJECT_ROOT

RECIPES = sorted((PROJECT_ROOT / "recipes").glob("*/*.yaml"))
SEVERAL_LABELS = {"mmoe", "ple", "esmm"}  # these logs have one
CLICK_LOGS = {"frappe": FRAPPE_FIELDS, "ml1m": ML1M_FIELDS}


@pytest.mark.parametrize(
    "path",
    [one for one in RECIPES if one.parent.name in CLICK_LOGS],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_recipe_is_read_and_its_model_can_be_built(path: Path) -> None:
    request = read_job(path, TrainRequest, {"data": "train.parquet", "validation": "valid.parquet"})
    fields = CLICK_LOGS[path.parent.name]
    features = Features(dense=(), categorical=tuple(CategoricalFeature(name=name, rows=50) for name in fields))
    assert request.model == path.stem
    fixed = read_overrides(request.model, request.architecture.set)
    check_overrides(request.model, fixed, features)
    assert request.search.trials == request.ensemble.ensemble_size == 1


@pytest.mark.parametrize("folder", CLICK_LOGS)
def test_each_family_of_click_models_has_a_recipe(folder: str) -> None:
    named = {path.stem for path in RECIPES if path.parent.name == folder}
    assert named == {name for name in MODEL_FAMILIES.names if not reads_positions(name)} - SEVERAL_LABELS
