"""Points as numbers, drawn, changed and brought over from another space."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.meta_learning.points import Domain
from shunter.search.space.settings import SearchSpace, family_options

AUTO = SearchSpace(families=("dlrm", "dnn", "dcnv2"), options=family_options("dcnv2"))
DOMAIN = Domain.of(AUTO)


@given(st.integers(0, 10_000))
def test_drawn_and_changed_points_are_points_of_the_space(seed: int) -> None:
    random = np.random.default_rng(seed)
    [point] = DOMAIN.draw(1, random)
    changed = DOMAIN.change(point, random)
    for one in (point, changed):
        spec, _ = AUTO.build(one)
        assert spec.family == one["family"]
        assert ("cross_layers" in one) == (one["family"] == "dcnv2")
        encoded = DOMAIN.encode([one])
        assert ((encoded >= 0) & (encoded <= 1)).all()
        assert DOMAIN.translate(one) == one


def test_places_by_hand() -> None:
    domain = Domain.of(SearchSpace(bottom_widths=(), embedding_dims=(4, 8, 16)))
    point = {
        "embedding_dim": 16,
        "top_width": 128,
        "top_layers": 2,
        "dropout": 0.25,
        "dense_learning_rate": 3e-4,
        "embedding_learning_rate": 0.03,
    }
    assert domain.encode([point])[0] == pytest.approx([1, 0.5, 0.5, 0.5, 0, 0.5])


def test_what_a_point_does_not_have_is_in_the_middle_and_words_have_columns() -> None:
    domain = Domain.of(SearchSpace(families=("dnn", "finalmlp"), options=family_options("finalmlp"), bottom_widths=()))
    first, second = domain.encode(domain.space.defaults())
    assert first[:2].tolist() == [1, 0]
    assert second[:2].tolist() == [0, 1]
    assert first[-1] == 0.5  # heads of finalmlp


def test_a_point_of_another_space_goes_to_the_nearest_one() -> None:
    moved = DOMAIN.translate(
        {
            "family": "dcnv2",
            "embedding_dim": 60,
            "top_width": 512,
            "top_layers": 7,
            "dropout": 0.9,
            "dense_learning_rate": 1.0,
            "embedding_learning_rate": 1e-9,
            "cross_structure": "in a ring",
            "cross_rank": 20,
            "unknown": "option",
        }
    )
    default = AUTO.default("dcnv2")
    assert moved == {
        **default,
        "embedding_dim": 16,
        "top_width": 256,
        "top_layers": 3,
        "dropout": 0.5,
        "dense_learning_rate": 1e-2,
        "embedding_learning_rate": 3e-3,
        "cross_rank": default["cross_rank"],  # among the choices is a word, so none of them is the nearest
    }


def test_a_point_that_tells_little_of_this_space_is_none() -> None:
    assert DOMAIN.translate({**AUTO.default("dnn"), "family": "dhen"}) is None
    assert DOMAIN.translate({"family": "dnn", "bottom_0": 64, "top_0": 128, "interaction": "dot"}) is None
    assert DOMAIN.translate({}) is None


def test_learning_rates_of_another_family_count_where_one_alone_is_searched() -> None:
    space = SearchSpace(bottom_widths=())
    point = {**AUTO.default("dcnv2"), "dropout": 0.25}
    moved = Domain.of(space).translate(point)
    assert moved is not None
    assert moved["dropout"] == 0.25
    assert "family" not in moved
