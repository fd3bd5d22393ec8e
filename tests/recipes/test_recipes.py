"""Every recipe is a request that can be read, and a model that can be built."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.quality.data import FRAPPE_FIELDS
from benchmarks.quality.recipes import FRAPPE
from engine.config import Hyperparameters
from engine.fixed import check_fixed, read_fixed
from models.registry import model_spec
from models.spec import CategoricalFeature, Features
from shunter.requests import TrainRequest, read_job
from shunter.settings import PROJECT_ROOT

RECIPES = sorted((PROJECT_ROOT / "recipes").glob("*/*.yaml"))
FEATURES = Features(dense=(), categorical=tuple(CategoricalFeature(name=name, rows=50) for name in FRAPPE_FIELDS))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recipe_is_read_and_its_model_can_be_built(path: Path) -> None:
    request = read_job(path, TrainRequest, {"data": "frappe.csv"})
    assert request.model == path.stem
    fixed = read_fixed(request.model, request.architecture.set)
    check_fixed(request.model, fixed, FEATURES)
    assert request.search.trials == request.ensemble.ensemble_size == 1


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recipe_is_that_of_the_benchmark_with_rates_that_fall(path: Path) -> None:
    request = read_job(path, TrainRequest, {"data": "frappe.csv"})
    fixed = read_fixed(request.model, request.architecture.set)
    known = FRAPPE.recipes[request.model]
    assert model_spec(request.model, **fixed.architecture) == known.spec
    assert Hyperparameters(**fixed.learning) == replace(known.hyperparameters, learning_rate_schedule="plateau")
