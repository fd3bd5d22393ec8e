"""The tables of model families: plain data that name importable families, without an import of any."""

import subprocess
import sys

import pytest

from shunter.errors import UnknownNameError
from shunter.model_families import (
    AUTO,
    MODEL_FAMILIES,
    PROBLEMS,
    RANKING_MODELS,
    is_ranking,
    is_solved,
    model_entry,
    model_names,
    problem_of,
    reads_positions,
)


@pytest.mark.parametrize("name", MODEL_FAMILIES.names)
def test_a_family_has_the_name_and_the_capabilities_of_its_entry(name: str) -> None:
    assert MODEL_FAMILIES.load(name).name == name
    assert model_entry(name).capabilities.keys() <= MODEL_FAMILIES.defaults.keys()


@pytest.mark.parametrize("name", RANKING_MODELS.names)
def test_a_ranking_model_has_the_name_and_the_capabilities_of_its_entry(name: str) -> None:
    from shunter.models.graph.solved import SolvedModel

    model = RANKING_MODELS.load(name)
    assert model.spec_class.family == name
    assert issubclass(model, SolvedModel) == is_solved(name)
    assert model_entry(name).capabilities.keys() <= RANKING_MODELS.defaults.keys()


def test_the_order_that_feeds_a_search_is_that_of_the_table() -> None:
    assert MODEL_FAMILIES.names_with(is_in_auto=True) == ("dlrm", "dnn", "deepfm", "dcnv2", "finalmlp", "dhen", "din")
    assert model_names() == (*MODEL_FAMILIES.names, AUTO, *RANKING_MODELS.names)


def test_capabilities_of_names_that_are_no_family_are_false() -> None:
    assert [is_ranking(name) for name in ("sasrec", "din", AUTO, "fusion", None)] == [True, False, False, False, False]
    assert [is_solved(name) for name in ("ease", "sasrec", "lr", "fusion", None)] == [True, False, False, False, False]
    assert [reads_positions(name) for name in ("din", "dlrm", AUTO, "sasrec")] == [True, False, False, False]


def test_a_misspelt_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refused:
        model_entry("dcnv3")
    assert refused.value.nearest == ("dcnv2",)


def test_a_family_is_imported_when_it_is_used() -> None:
    script = (
        "import sys, shunter.models.registry, shunter.models.names, shunter.models.graph, shunter.requests\n"
        "from shunter.model_families import MODEL_FAMILIES, RANKING_MODELS, model_names\n"
        "model_names()\n"
        "targets = [entry.target for one in (MODEL_FAMILIES, RANKING_MODELS) for entry in one.entries.values()]\n"
        "print(*(target for target in targets if target.partition(':')[0] in sys.modules))"
    )
    assert not subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_every_part_of_a_problem_can_be_loaded_and_both_problems_have_the_same_parts() -> None:
    parts = [one for one, named in PROBLEMS.entries["clicks"].capabilities.items() if isinstance(named, str)]
    assert all(callable(PROBLEMS.load_part(name, part)) for name in PROBLEMS.names for part in parts)
    assert [problem_of(model) for model in ("dlrm", AUTO, "ease", "lightgcn")] == ["clicks"] * 2 + ["rankings"] * 2
