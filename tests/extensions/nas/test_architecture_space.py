"""The space of architecture search: what its points build, and what they cost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna import create_study
from optuna.samplers import RandomSampler

from shunter.engine.data.dataset import Dataset, SplitStatistics
from shunter.engine.overrides import read_overrides
from shunter.errors import RequestError
from shunter.extensions.nas.architecture_space import ArchitectureSpace, shares_worth
from shunter.models.counting import count_model
from shunter.models.registry import build_model
from shunter.models.spec import CategoricalFeature, Features
from shunter.search.protocol import Parameters, Space
from tests.engine.synthetic import write_dataset

FEATURES = Features(
    dense=("price", "age"),
    categorical=(
        CategoricalFeature(name="user", rows=2_000),
        CategoricalFeature(name="item", rows=300),
        CategoricalFeature(name="seen", rows=300, multi_valued=True, length=5, table="item"),
        CategoricalFeature(name="tags", rows=9, multi_valued=True),
    ),
)
SPACE = ArchitectureSpace(
    features=FEATURES,
    embedding_dim=8,
    bottom=((0, 8), (0, 8, 16)),
    top=((0, 8), (0, 16), (8, 16)),
    dims={"user": (4, 8), "tags": (4, 8)},
    shares={"user": (1.0, 0.1), "item": (1.0, 0.01)},
)


def points(space: ArchitectureSpace) -> st.SearchStrategy[Parameters]:
    return st.fixed_dictionaries({name: st.sampled_from(values) for name, values in space.factors().items()})


def dataset_of(features: Features, rows: int, directory: Path) -> Dataset:
    splits = {name: SplitStatistics(rows=rows, positives=rows // 2) for name in ("train", "validation", "test")}
    return Dataset(
        name="x",
        directory=directory,
        fingerprint="f",
        features=features,
        splits=splits,
        split_by="hash",
        fields=(),
        quarantined_rows=0,
    )


def test_it_is_a_space_with_a_point_to_begin_with() -> None:
    space: Space = SPACE
    assert space.factors().keys() == space.defaults()[0].keys()
    for name, value in space.defaults()[0].items():
        assert value in space.factors()[name]
    assert ArchitectureSpace.model_validate_json(space.model_dump_json()) == SPACE


@settings(max_examples=15, deadline=None)
@given(point=points(SPACE))
def test_bytes_are_those_of_the_model(point: Parameters) -> None:
    model = build_model(SPACE.build(point)[0], FEATURES)
    floats = sum(parameter.numel() for parameter in model.parameters()) + model.embeddings.weight.numel()
    assert SPACE.parameter_bytes(point) == 4 * floats


@pytest.mark.parametrize("interaction", SPACE.interactions)
def test_costs_are_those_counted_from_a_step(interaction: str) -> None:
    point = {**SPACE.defaults()[0], "interaction": interaction, "dim_user": 4, "share_item": 0.01, "top_1": 0}
    counts = count_model(SPACE.build(point)[0], FEATURES)
    assert SPACE.parameter_bytes(point) == counts.parameter_bytes


def test_a_left_out_layer_is_skipped_wherever_it_stands() -> None:
    point = {**SPACE.defaults()[0], "top_0": 8, "top_1": 0, "top_2": 16, "bottom_0": 0, "bottom_1": 0}
    spec, _ = SPACE.build(point)
    assert (spec.bottom_widths, spec.top_widths) == ((), (8, 16))


def test_a_table_without_a_factor_is_whole() -> None:
    point = {**SPACE.defaults()[0], "dim_user": 4, "share_item": 0.01}
    spec, _ = SPACE.build(point)
    assert (spec.table_dims, spec.table_shares) == ((4, 8, 8), (1.0, 0.01, 1.0))
    spec, _ = SPACE.build({**point, "dim_user": 8, "dim_tags": 8, "share_item": 1.0, "share_user": 1.0})
    assert not spec.has_mixed_tables, "then it is stored and trained like any other"


def test_optuna_draws_points_of_it() -> None:
    study = create_study(sampler=RandomSampler(seed=1))
    point = SPACE.suggest(study.ask())
    assert all(point[name] in values for name, values in SPACE.factors().items())


def test_it_grows_with_the_data_and_leaves_small_tables_alone(tmp_path: Path) -> None:
    few = ArchitectureSpace.for_dataset(dataset_of(FEATURES, 5_000, tmp_path))
    many = ArchitectureSpace.for_dataset(dataset_of(FEATURES, 2_000_000, tmp_path))
    assert few.top[0] == (0, 16, 32, 64)
    assert many.top[0] == (0, 128, 256, 512)
    assert few.dims == {"user": (4, 8, 16), "item": (4, 8, 16)}, "nine rows of tags save nothing"
    assert few.shares == {"user": (1.0, 0.1, 0.01)}
    assert many.embedding_dim == 32
    every = ArchitectureSpace.for_dataset(dataset_of(FEATURES, 5_000, tmp_path), least_table_share=0)
    assert list(every.dims) == ["user", "item", "tags"]
    no_dense = replace(FEATURES, dense=())
    assert not ArchitectureSpace.for_dataset(dataset_of(no_dense, 5_000, tmp_path)).bottom


def test_shares_leave_rows_enough() -> None:
    assert shares_worth(999) == (1.0,)
    assert shares_worth(1_600) == (1.0, 0.1, 0.01)
    assert shares_worth(1_000_000) == (1.0, 0.1, 0.01, 0.001)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interactions": ()}, "The factor interaction of the architecture space is empty"),
        ({"top": ((8,), ())}, "The factor top_1 "),
        ({"dims": {"user": ()}}, "The factor dim_user "),
        ({"shares": {"item": ()}}, "The factor share_item "),
        ({"dims": {"usr": (4,)}}, "names the unknown table 'usr': use 'user'"),
        ({"dims": {"seen": (4,)}}, "names the unknown table 'seen'"),
        ({"dims": {"user": (6,)}}, "The factor dim_user .* an impossible table width"),
        ({"shares": {"item": (0.0,)}}, "The factor share_item .* outside of its range"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        ArchitectureSpace(**{**dict(SPACE), **options})


def test_what_is_fixed_is_in_every_architecture_unless_it_is_what_is_searched(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=300)
    overrides = read_overrides("dlrm", ["batch_norm=true", "dense_learning_rate=0.005"])
    space = ArchitectureSpace.for_dataset(dataset, overrides=overrides)
    spec, rates = space.build(space.defaults()[0])
    assert (spec.batch_norm, rates.dense_learning_rate) == (True, 0.005)
    with pytest.raises(RequestError, match="top_widths"):
        ArchitectureSpace.for_dataset(dataset, overrides=read_overrides("dlrm", ["top_widths=64"]))
