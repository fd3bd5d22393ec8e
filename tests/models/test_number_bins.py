"""Numbers cut into bins."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shunter.errors import RequestError
from shunter.models import number_bins
from shunter.models.layers import FieldVectors
from shunter.models.number_bins import NumberBins, begin_bins
from shunter.models.registry import build_model, model_spec
from tests.models.families.test_dlrm import features_of

COLUMN = arrays.arrays(np.float32, st.integers(2, 40), elements=st.integers(-50, 50).map(lambda whole: whole / 8))


@given(COLUMN, st.integers(1, 9))
def test_a_number_is_the_least_one_and_its_shares_of_the_bins(column: np.ndarray, bins: int) -> None:
    cut = NumberBins(1, bins)
    cut.begin(column[:, None])
    shares = cut.shares(torch.from_numpy(column[:, None]))[:, 0].double().numpy()
    edges = np.quantile(column.astype(np.float64), np.linspace(0, 1, bins + 1))
    np.testing.assert_allclose(edges[0] + shares @ np.diff(edges), column, atol=1e-4)
    there = np.diff(edges) > 1e-4
    assert (np.diff(shares[:, there], axis=1) <= 1e-5).all()  # a bin is begun when those before it are full
    assert not shares[:, np.diff(edges) == 0].any()


def test_bins_hold_as_many_numbers_each_and_end_at_the_first_and_last() -> None:
    column = np.random.default_rng(0).lognormal(size=(1000, 1)).astype(np.float32)
    cut = NumberBins(1, 4)
    cut.begin(column)
    inside = ((shares := cut.shares(torch.from_numpy(column))) > 0) & (shares < 1)
    assert inside.sum(0).flatten().tolist() == pytest.approx([250] * 4, abs=2)
    assert cut.shares(torch.tensor([[-5.0], [1e6]]))[:, 0].tolist() == [[0.0] * 4, [1.0] * 4]


def test_one_far_outlier_takes_no_bin_from_the_others() -> None:
    column = np.append(np.arange(100), 1e9).astype(np.float32)[:, None]
    cut = NumberBins(1, 4)
    cut.begin(column)
    assert (cut.slopes > 0).all()
    assert cut.shares(torch.tensor([[25.0], [50.0]]))[:, 0, :2].flatten().tolist() == pytest.approx([1, 0, 1, 1])


def test_numbers_stand_before_the_shares_of_all() -> None:
    cut = NumberBins(2, 2)
    cut.begin(np.array([[0, 0], [1, 10], [2, 40]], np.float32))
    found = cut(torch.tensor([[1.5, 10.0]])).flatten().tolist()
    assert found == pytest.approx([1.5, 10.0, 1.0, 0.5, 1.0, 0.0], abs=1e-6)


def test_of_a_long_part_rows_at_even_distances_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_bins, "MOST_ROWS", 3)
    model = build_model(model_spec("lr", numeric_bins=1), features_of(1, 1))
    begin_bins(model.layers, np.array([[1], [9], [9], [2], [9], [9], [4]], np.float32))
    (cut,) = (module for module in model.layers.modules() if isinstance(module, NumberBins))
    assert cut.shares(torch.tensor([[1.0], [2.5], [4.0]])).flatten().tolist() == [0.0, 0.5, 1.0]


def test_each_bin_adds_its_vector_to_that_of_its_number() -> None:
    spec = model_spec(family="deepfm", embedding_dim=4, numeric_embedding="vector", numeric_bins=2)
    vectors = FieldVectors(spec, features_of(1, 1))
    assert vectors.bin_vectors is not None
    assert vectors.numbers is not None
    begin_bins(vectors, np.array([[0], [1], [3]], np.float32))
    torch.nn.init.normal_(vectors.bin_vectors)
    found = vectors(torch.tensor([[2.0]]), torch.zeros(1, 1, 4))[0, 0]
    first, second = vectors.bin_vectors[0]
    torch.testing.assert_close(found, 2 * vectors.numbers[0] + first + 0.5 * second)


def test_fewer_bins_than_none_are_refused() -> None:
    with pytest.raises(RequestError, match="numeric_bins"):
        build_model(model_spec("dnn", numeric_bins=-1), features_of(1, 1))
