"""The search space: every point is a model that can be built, and the default is one of them."""

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset, SplitStatistics
from shunter.engine.overrides import Overrides, read_overrides
from shunter.model_families import AUTO, MODEL_FAMILIES
from shunter.models.names import auto_families
from shunter.models.optimizers import rate_scale_of
from shunter.models.registry import build_layers, check_spec, model_spec
from shunter.models.spec import CategoricalFeature, Features
from shunter.search.space.learning import FIRST_BINS, LEARNING_OPTIONS, default_hyperparameters, rate_scale, usual_rates
from shunter.search.space.settings import SearchSpace


def dataset_of(train_rows: int, dense: int = 2) -> Dataset:
    """A data set of any size, which is not read."""
    features = Features(
        dense=tuple(f"dense{i}" for i in range(dense)),
        categorical=(
            CategoricalFeature(name="user", rows=10),
            CategoricalFeature(name="seen", rows=10, multi_valued=True, length=3),
        ),
    )
    return Dataset(
        name="sized",
        directory=Path("nowhere"),
        fingerprint=str(train_rows),
        features=features,
        splits={name: SplitStatistics(rows=train_rows, positives=1) for name in ("train", "validation", "test")},
        split_by="hash",
        fields=(),
        quarantined_rows=0,
    )


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 10**9),
    dense=st.integers(0, 3),
    seed=st.integers(0, 1_000),
    family=st.sampled_from(sorted(MODEL_FAMILIES.names)),
    wide=st.booleans(),
)
def test_every_point_is_a_model_that_can_be_built(rows: int, dense: int, seed: int, family: str, wide: bool) -> None:
    dataset = dataset_of(rows, dense)
    space = SearchSpace.for_dataset(dataset, family, is_wide=wide)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    study.enqueue_trial(space.default())
    for _ in range(3):
        spec, hyperparameters = space.build(space.suggest(study.ask()))
        with torch.device("meta"):
            build_layers(spec, dataset.features)
        assert all(width >= 1 for width in (*spec.bottom_widths, *spec.top_widths))
        is_each = spec.numeric_embedding == "vector"
        assert bool(spec.bottom_widths) == bool(
            dense and MODEL_FAMILIES.capability(family, "has_hidden_layers") and not is_each
        )
        low, high = space.dense_learning_rates
        scale = rate_scale_of(hyperparameters.dense_optimizer)
        assert low <= hyperparameters.dense_learning_rate / scale <= high * (1 + 1e-9)


@pytest.mark.parametrize("family", MODEL_FAMILIES.names)
@pytest.mark.parametrize("rows", [1, 80_000, 45_000_000])
def test_default_model_is_in_the_space_of_every_size(rows: int, family: str) -> None:
    space = SearchSpace.for_dataset(dataset_of(rows), family)
    begun = model_spec(family=family, numeric_bins=FIRST_BINS)
    assert space.build(space.default()) == (begun, default_hyperparameters(family))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial(space.default())
    assert space.suggest(study.ask()) == space.default()


def test_more_data_allows_wider_layers() -> None:
    small, large = SearchSpace.for_dataset(dataset_of(1_000)), SearchSpace.for_dataset(dataset_of(45_000_000))
    assert max(small.top_widths) < max(large.top_widths)
    assert max(small.embedding_dims) < max(large.embedding_dims)


@pytest.mark.parametrize("family", auto_families())
def test_large_logs_begin_wide_and_flat_and_held_back_and_small_ones_with_the_default(family: str) -> None:
    space = SearchSpace.for_dataset(dataset_of(200_000), family)
    point, default = space.defaults()
    assert default == space.default()
    small = SearchSpace.for_dataset(dataset_of(20_000), family)
    assert small.defaults() == [small.default(), small.held_back(family)]
    spec, rates = space.build(point)
    assert spec.top_widths == (512, 512)
    assert (spec.batch_norm, spec.dropout, spec.embedding_dim) == (True, 0.1, 32)
    assert (rates.embedding_l2, rates.embedding_initial_bound) == (1e-3, 0.03)
    assert (rates.learning_rate_schedule, rates.cosine_epochs) == ("cosine", 3)
    study = optuna.create_study()
    study.enqueue_trial(point)
    assert space.suggest(study.ask()) == point


def test_passes_of_a_cosine_are_of_no_other_schedule_and_not_searched_where_that_is_fixed() -> None:
    space = SearchSpace.for_dataset(dataset_of(200_000), "dnn")
    short, long = ({**space.held_back("dnn"), "cosine_epochs": epochs} for epochs in (3, 6))
    assert space.identity(short) != space.identity(long)
    short, long = ({**point, "learning_rate_schedule": "plateau"} for point in (short, long))
    assert space.identity(short) == space.identity(long)
    assert space.build(long)[1].cosine_epochs is None
    overrides = SearchSpace.for_dataset(
        dataset_of(200_000), "dnn", overrides=Overrides(learning={"learning_rate_schedule": "cosine"})
    )
    assert not {"learning_rate_schedule", "cosine_epochs"} & overrides.factors().keys()
    assert overrides.build(overrides.defaults()[0])[1].cosine_epochs is None, (
        "as long as the training, as was asked for"
    )


def test_a_search_tries_what_all_families_learn_with() -> None:
    factors = SearchSpace.for_dataset(dataset_of(10_000), "dlrm").factors()
    assert {"batch_norm", "top_shape", *LEARNING_OPTIONS} <= factors.keys()
    assert max(SearchSpace.for_dataset(dataset_of(4_000_000)).top_widths) == 1024
    without_layers = SearchSpace.for_dataset(dataset_of(10_000), "lr")
    assert not {"batch_norm", "top_shape"} & without_layers.factors().keys()
    assert without_layers.defaults() == [without_layers.default()]


def test_numbers_are_cut_into_bins_or_vectors_of_their_own_where_there_are_some_and_the_family_reads_them() -> None:
    space = SearchSpace.for_dataset(dataset_of(10_000), AUTO)
    assert space.parameters("dlrm").keys() >= {"numeric_bins"}
    assert "numeric_embedding" not in space.parameters("dlrm")
    spec, _ = space.build({**space.default("dnn"), "numeric_embedding": "vector", "numeric_bins": 32})
    assert (spec.numeric_embedding, spec.numeric_bins, spec.bottom_widths) == ("vector", 32, ())
    assert not {"numeric_bins", "numeric_embedding"} & SearchSpace.for_dataset(dataset_of(10_000, 0)).factors().keys()
    overrides = SearchSpace.for_dataset(
        dataset_of(10_000), "dnn", overrides=Overrides(architecture={"numeric_bins": 0})
    )
    assert overrides.build(overrides.default())[0].numeric_bins == 0


def test_the_streams_of_finalmlp_may_be_gated_by_who_and_what_where_the_schema_says_which_these_are() -> None:
    fields = ("7", "shown")
    features = Features(dense=(), categorical=tuple(CategoricalFeature(name=name, rows=10) for name in fields))
    dataset = replace(dataset_of(20_000), features=features, user="7", item="shown")
    space = SearchSpace.for_dataset(dataset, "finalmlp")

    plain, _ = space.build(space.default())
    assert (plain.first_gate, space.factors()["second_gate"]) == ((), ("shown", ""))  # type: ignore[attr-defined]
    gated, _ = space.build({**space.default(), "first_gate": "7", "second_gate": "shown"})
    assert (gated.first_gate, gated.second_gate) == (("7",), ("shown",))  # type: ignore[attr-defined]
    with torch.device("meta"):
        build_layers(gated, features)
    assert "first_gate" not in SearchSpace.for_dataset(dataset, "dcnv2").factors()
    assert "first_gate" not in SearchSpace.for_dataset(replace(dataset, item=None), AUTO).factors()
    overrides = SearchSpace.for_dataset(
        dataset, "finalmlp", overrides=Overrides(architecture={"first_gate": ("shown",)})
    )
    assert overrides.build(overrides.default())[0].first_gate == ("shown",)  # type: ignore[attr-defined]


def test_flat_layers_are_all_as_wide_as_the_first() -> None:
    space = SearchSpace.for_dataset(dataset_of(10_000), "dnn")
    spec, _ = space.build({**space.default(), "top_width": 256, "top_layers": 3, "top_shape": "flat"})
    assert spec.top_widths == (256, 256, 256)


def test_hidden_layers_halve() -> None:
    space = SearchSpace()
    spec, _ = space.build({**space.default(), "top_width": 256, "top_layers": 3})
    assert spec.top_widths == (256, 128, 64)


def test_every_family_of_auto_is_tried_first_and_drawn_with_its_own_options_only() -> None:
    dataset = dataset_of(40_000)
    space = SearchSpace.for_dataset(dataset, AUTO)
    families = auto_families(dataset.features)
    own = [space.build(point) for point in space.defaults()][: len(families)]
    begun = [model_spec(family=family, numeric_bins=FIRST_BINS) for family in families]
    assert own == [(spec, Hyperparameters()) for spec in begun]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn: dict[str, set[str]] = {}
    for _ in range(150):
        trial = study.ask()
        parameters = space.suggest(trial)
        assert parameters == trial.params
        spec, _ = space.build(parameters)
        assert spec.family == parameters["family"]
        check_spec(spec, dataset.features)
        drawn.setdefault(spec.family, set()).update(parameters)
    assert set(drawn) == set(families)
    shared = set(space.default("dnn"))
    assert {family: names - shared for family, names in drawn.items()} == {
        family: set(SearchSpace.for_dataset(dataset, family).options) - shared for family in families
    }


def test_auto_tries_families_that_read_histories_where_there_is_one_and_the_tables_lie_in_memory() -> None:
    dataset = dataset_of(40_000)
    assert SearchSpace.for_dataset(dataset, AUTO).families == (*auto_families(), "din")
    assert SearchSpace.for_dataset(dataset, AUTO, in_file=True).families == auto_families()
    user, seen = dataset.features.categorical
    pooled = replace(dataset.features, categorical=(user, replace(seen, length=None)))
    assert SearchSpace.for_dataset(replace(dataset, features=pooled), AUTO).families == auto_families()


FIXED = ("top_widths=400,400", "dropout=0.2", "batch_norm=true", "embedding_l2=0.001", "dense_learning_rate=0.002")


@pytest.mark.parametrize("model", [AUTO, *auto_families()])
def test_what_is_fixed_is_in_every_point_and_is_not_searched(model: str) -> None:
    dataset = dataset_of(10_000)
    space = SearchSpace.for_dataset(dataset, model, overrides=read_overrides(model, FIXED))
    gone = {"top_width", "top_layers", "dropout", "dense_learning_rate"}
    assert not gone & space.factors().keys()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    points = [*space.defaults(), *(space.suggest(study.ask()) for _ in range(12))]
    for point in points:
        assert not gone & point.keys()
        spec, rates = space.build(point)
        assert (spec.top_widths, spec.dropout, spec.batch_norm) == ((400, 400), 0.2, True)
        assert (rates.embedding_l2, rates.dense_learning_rate) == (0.001, 0.002)
        with torch.device("meta"):
            build_layers(spec, dataset.features)


def test_values_that_do_not_go_with_what_is_fixed_are_not_tried() -> None:
    overrides = read_overrides("finalmlp", ["top_widths=100"])
    assert SearchSpace.for_dataset(dataset_of(10_000), "finalmlp", overrides=overrides).options["fusion_heads"] == (
        1,
        2,
        4,
    )


def test_a_space_without_anything_fixed_is_written_as_ever() -> None:
    """By its text a study is told from others: those that were begun go on."""
    assert "fixed" not in SearchSpace.for_dataset(dataset_of(10_000), overrides=Overrides()).model_dump_json()


def test_rates_grow_with_the_root_of_the_batch_and_never_fall_below_the_usual_ones() -> None:
    assert [rate_scale(size) for size in (64, 512, 2048, 8192)] == [1.0, 1.0, 2.0, 4.0]


def test_space_of_a_large_batch_begins_with_larger_rates_and_searches_about_them() -> None:
    usual = SearchSpace()
    large = usual.at_batch_size(2048)
    assert usual.at_batch_size(256) == usual
    assert large.at_batch_size(2048) == large
    assert large.at_batch_size(512) == usual
    for field in ("dense_learning_rates", "embedding_learning_rates"):
        assert getattr(large, field) == tuple(2 * bound for bound in getattr(usual, field))
    (_, before), (_, after) = (space.build(space.default()) for space in (usual, large))
    assert after.dense_learning_rate == 2 * before.dense_learning_rate
    assert after.embedding_learning_rate == 2 * before.embedding_learning_rate
    assert usual_rates(2048) == after


def test_space_of_a_usual_batch_is_written_as_it_always_was() -> None:
    assert "rate_scale" not in SearchSpace().model_dump()
    assert SearchSpace.model_validate_json(SearchSpace().at_batch_size(4096).model_dump_json()).rate_scale > 1


def test_the_wide_space_begins_where_the_other_does_and_has_more() -> None:
    narrow, wide = (SearchSpace.for_dataset(dataset_of(10_000), "dnn", is_wide=is_wide) for is_wide in (False, True))

    assert [wide.build(point) for point in wide.defaults()] == [narrow.build(point) for point in narrow.defaults()]
    added = wide.factors().keys() - narrow.factors().keys()
    assert added == {"dense_optimizer", "warmup_epochs", "small_table_width"}
    assert wide.factors()["learning_rate_schedule"] == ("constant", "plateau", "cosine")
    point = {**wide.default(), "dense_optimizer": "adagrad", "embedding_dim": 16, "small_table_width": 0.25}
    spec, learned = wide.build(point)
    assert spec.table_dims == (4, 4)
    assert learned.dense_learning_rate == pytest.approx(10 * Hyperparameters().dense_learning_rate)
    assert "dense_optimizer" not in SearchSpace.for_dataset(dataset_of(10_000), "lr", is_wide=True).factors()
    assert "small_table_width" not in SearchSpace.for_dataset(dataset_of(10_000), "deepfm", is_wide=True).factors()


def test_what_the_user_fixed_is_not_widened() -> None:
    overrides = read_overrides("dnn", ["dense_optimizer=shampoo", "dense_learning_rate=0.003"])
    space = SearchSpace.for_dataset(dataset_of(10_000), "dnn", overrides=overrides, is_wide=True)

    assert "dense_optimizer" not in space.factors()
    _, learned = space.build(space.default())
    assert (learned.dense_optimizer, learned.dense_learning_rate) == ("shampoo", 0.003)
