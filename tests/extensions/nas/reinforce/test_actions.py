"""Points as actions: there and back, from other spaces, and only those that fit into memory."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.nas.reinforce.experience import Actions

FACTORS = {"width": (16, 64, 256), "kind": ("dot", "cross"), "rate": (0.001, 0.01, 0.1), "rank": (None, 8)}
values = st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in FACTORS.items()})


@given(values)
def test_a_point_is_found_again(point):
    actions = Actions(FACTORS)

    action = actions.encode(point)

    assert action is not None
    assert actions.decode(action) == point


def test_a_point_of_another_space_becomes_the_nearest():
    actions = Actions(FACTORS, default={"width": 64, "kind": "cross", "rate": 0.01, "rank": None})

    found = actions.encode({"width": 100, "rate": 0.02, "unheard of": 1})

    assert found is not None
    assert actions.decode(found) == {"width": 64, "kind": "cross", "rate": 0.01, "rank": None}
    assert actions.encode({"width": 16, "kind": "unheard of"}) is None


def test_a_factor_without_values_is_refused_by_name():
    with pytest.raises(RequestError, match="'kind'"):
        Actions({"width": (1, 2), "kind": ()})


def bytes_of(point):
    return point["rows"] * point["dim"] + point["layer"]


@given(limit=st.integers(1, 5000))
def test_the_mask_leaves_exactly_the_values_of_points_that_fit(limit):
    factors = {"rows": (10, 100, 30), "dim": (4, 16, 32), "layer": (0, 64, 512)}
    free = Actions(factors)
    fitting = {action for action in itertools.product(range(3), repeat=3) if bytes_of(free.decode(action)) <= limit}
    if not fitting:
        with pytest.raises(InfeasibleError, match="40 bytes"):
            Actions(factors, bytes_of=bytes_of, most_bytes=limit)
        return

    actions = Actions(factors, bytes_of=bytes_of, most_bytes=limit)

    expected = np.array([[any(one[factor] == value for one in fitting) for value in range(3)] for factor in range(3)])
    assert (actions.mask == expected).all()
    assert all(actions.fits(one) == (one in fitting) for one in itertools.product(range(3), repeat=3))


def test_draws_and_neighbours_keep_the_limit_of_each_value():
    actions = Actions({"rows": (10, 100), "dim": (4, 16)}, bytes_of=lambda p: p["rows"] * p["dim"], most_bytes=160)

    drawn = actions.uniform(50, np.random.default_rng(0))

    assert {tuple(one) for one in drawn.tolist()} == {(0, 0), (0, 1)}  # 100 rows take at least 400 bytes
    assert actions.neighbours((0, 0)) == [(0, 1)]


def test_one_hot_has_a_one_for_each_factor():
    encoded = Actions({"a": (1, 2), "b": (1, 2, 3)}).one_hot(np.array([[1, 2], [0, 0]]))

    assert encoded.tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]
