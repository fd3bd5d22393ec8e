"""What `--set` says: every field of every family and of the learning settings by its name, and one sentence else."""

from dataclasses import fields
from pathlib import Path

import pytest

from shunter.engine.config import Hyperparameters
from shunter.engine.overrides import OWN_OPTIONS, Overrides, check_overrides, read_overrides
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.errors import RequestError
from shunter.model_families import MODEL_FAMILIES, RANKING_MODELS, is_ranking
from shunter.models.graph import graph_spec
from shunter.models.names import auto_families
from shunter.models.registry import family_of
from tests.engine.synthetic import write_dataset


def as_text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("family", [*MODEL_FAMILIES.names, *RANKING_MODELS.names_with(is_solved=False)])
def test_every_field_can_be_given_and_comes_back_as_it_is(family: str) -> None:
    is_graph = is_ranking(family)
    spec = graph_spec(family) if is_graph else family_of(family).spec()
    rates = RankingHyperparameters() if is_graph else Hyperparameters()
    settable = [one.name for one in (*fields(spec), *fields(rates)) if one.name not in OWN_OPTIONS]
    assert len(settable) >= 5
    for name in settable:
        part, value = (spec, "architecture") if hasattr(spec, name) else (rates, "learning")
        expected = getattr(part, name)
        assert getattr(read_overrides(family, [f"{name}={as_text(expected)}"]), value) == {name: expected}, name


@pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=True))
def test_of_what_is_solved_only_its_own_fields_can_be_given(family: str) -> None:
    spec = graph_spec(family)
    for option in fields(spec):
        expected = getattr(spec, option.name)
        assert read_overrides(family, [f"{option.name}={expected}"]).architecture == {option.name: expected}
    with pytest.raises(RequestError, match="learning_rate"):
        read_overrides(family, ["learning_rate=0.1"])


def test_values_are_of_the_type_of_their_field() -> None:
    entries = ["batch_norm=true", "top_widths=400,400,400", "embedding_initial_bound=none", "dropout=0.2", "patience=5"]
    assert read_overrides("dcnv2", entries) == Overrides(
        architecture={"batch_norm": True, "top_widths": (400, 400, 400), "dropout": 0.2},
        learning={"embedding_initial_bound": None},
        patience=5,
    )
    assert read_overrides("finalmlp", ["first_gate=user,item"]).architecture == {"first_gate": ("user", "item")}
    assert read_overrides("dhen", ["interactions=dot,linear", "interaction_layers=3"]).architecture == {
        "interactions": ("dot", "linear"),
        "interaction_layers": 3,
    }


def test_auto_takes_what_all_its_families_have() -> None:
    assert read_overrides("auto", ["batch_norm=true"]).architecture == {"batch_norm": True}
    assert all(hasattr(family_of(family).spec(), "batch_norm") for family in auto_families())


@pytest.mark.parametrize(
    ("model", "entry", "words"),
    [
        ("dcnv2", "batch_nrom=true", "no field batch_nrom in --set of --model dcnv2: did you mean batch_norm?"),
        ("dcnv2", "batch_norm=perhaps", "--set batch_norm=perhaps has an unsuitable value: give true or false."),
        (
            "dcnv2",
            "top_widths=many",
            "--set top_widths=many has an unsuitable value: give whole numbers with commas between",
        ),
        ("dcnv2", "cross_structure=side", "has an unsuitable value: give one of parallel, stacked."),
        ("dcnv2", "cross_rank=few", "has an unsuitable value: give a whole number or none."),
        ("dcnv2", "dense_learning_rate=-1", "is too small: give a number of at least 0."),
        ("dcnv2", "patience=0", "is too small: give a number of at least 1."),
        ("dcnv2", "dense_learning_rate=nan", "is too small: give a number of at least 0."),
        ("dnn", "cross_layers=2", "cross_layers does nothing for --model dnn: leave it out, or use --model dcnv2."),
        ("auto", "fusion_heads=2", "--set fusion_heads does nothing for --model auto: .* use --model finalmlp."),
        ("dmt", "towers=3", "The setting towers has an option of its own: use --towers instead of --set."),
        ("lightgcn", "lairs=3", "There is no field lairs in --set of --model lightgcn: did you mean layers?"),
    ],
)
def test_what_does_not_suit_is_said_in_one_sentence(model: str, entry: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        read_overrides(model, [entry])


@pytest.mark.parametrize(
    ("model", "entries", "words"),
    [
        ("finalmlp", ["fusion_heads=3"], "fusion_heads = 3 must divide"),
        ("finalmlp", ["first_gate=usr"], "unknown field 'usr'"),
        ("dnn", ["embedding_dim=7"], "embedding width is 7"),
        ("dnn", ["dropout=1.5"], "cannot be built with dropout=1.5"),
        ("lightgcn", ["layers=0"], "option layers of a graph model"),
    ],
)
def test_what_makes_no_model_of_the_data_is_refused_before_anything_runs(
    tmp_path: Path, model: str, entries: list[str], words: str
) -> None:
    features = write_dataset(tmp_path, rows=100).features
    check_overrides(model, read_overrides(model, []), features)
    with pytest.raises(RequestError, match=words):
        check_overrides(model, read_overrides(model, entries), features)
