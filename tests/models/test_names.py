"""The names of models that a request takes."""

import pytest

from shunter.errors import RequestError
from shunter.model_families import AUTO
from shunter.models.counting import count_model
from shunter.models.names import auto_families, check_model, representative
from shunter.models.registry import build_layers, can_be_in_file, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.models.families.test_dlrm import features_of


@pytest.mark.parametrize("name", [AUTO, *auto_families(), "lightgcn"])
def test_known_names_pass(name: str) -> None:
    check_model(name)


@pytest.mark.parametrize(("name", "meant"), [("dlmr", "dlrm"), ("lightgnc", "lightgcn"), ("atuo", "auto")])
def test_unknown_name_is_answered_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(RequestError, match=rf"Unknown model family '{name}': use '{meant}', or another of auto, "):
        check_model(name)


def test_auto_is_placed_as_its_dearest_family() -> None:
    features = features_of(2, 4, 1)
    flops = {
        family: count_model(model_spec(family=family), features).matmul_flops_per_sample for family in auto_families()
    }
    assert flops[representative(AUTO, features)] == max(flops.values())
    assert representative("dnn", features) == "dnn"


def test_auto_reads_a_history_where_there_is_one() -> None:
    item = CategoricalFeature(name="item", rows=10)
    seen = CategoricalFeature(name="seen", rows=10, multi_valued=True, table="item", length=200)
    features = Features(dense=(), categorical=(item, seen))
    assert auto_families(Features(dense=(), categorical=(item,))) == auto_families()
    assert auto_families(features) == (*auto_families(), "din")
    for family in auto_families(features):
        build_layers(model_spec(family), features)
    assert auto_families(features, in_file=True) == auto_families()
    assert can_be_in_file(model_spec(representative(AUTO, features)))  # so that large tables find their room
