"""The names of models that a request takes."""

import pytest

from models.counting import count_model
from models.names import AUTO, AUTO_FAMILIES, check_model, representative
from models.registry import model_spec
from shunter.errors import RequestError
from tests.models.families.test_dlrm import features_of


@pytest.mark.parametrize("name", [AUTO, *AUTO_FAMILIES, "lightgcn"])
def test_known_names_pass(name: str) -> None:
    check_model(name)


@pytest.mark.parametrize(("name", "meant"), [("dlmr", "dlrm"), ("lightgnc", "lightgcn"), ("atuo", "auto")])
def test_unknown_name_is_answered_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(RequestError, match=rf"Unknown model family '{name}': use '{meant}', or another of auto, "):
        check_model(name)


def test_auto_is_placed_as_its_dearest_family() -> None:
    features = features_of(2, 4, 1)
    flops = {
        family: count_model(model_spec(family=family), features).matmul_flops_per_sample for family in AUTO_FAMILIES
    }
    assert flops[representative(AUTO, features)] == max(flops.values())
    assert representative("dnn", features) == "dnn"
