"""Layout of a batch, and the check of its ids."""

import numpy as np
import pytest
import torch

from shunter.engine.data.batch import Bags, make_batch
from shunter.errors import DataError
from shunter.models.spec import CategoricalFeature, Features

MIXED = Features(
    dense=("age",),
    categorical=(
        CategoricalFeature(name="tags", rows=9, multi_valued=True),
        CategoricalFeature(name="user", rows=5),
        CategoricalFeature(name="genres", rows=4, multi_valued=True),
    ),
)
TAGS = Bags(values=np.array([8, 7], np.int32), lengths=np.array([0, 2, 0]))
GENRES = Bags(values=np.array([1, 2, 3], np.int32), lengths=np.array([1, 0, 2]))
USERS = np.array([[4], [0], [2]], np.int32)


def test_fields_keep_their_order_and_bags_their_ids() -> None:
    batch = make_batch(MIXED, dense=np.ones((3, 1), np.float32), categorical=USERS, bags=[TAGS, GENRES])
    assert batch.values.tolist() == [8, 7, 4, 0, 2, 1, 2, 3]
    assert batch.offsets.tolist() == [0, 0, 2, 2, 3, 4, 5, 6, 6, 8]
    assert len(batch) == 3


def test_single_valued_fields_need_no_bags() -> None:
    features = Features(dense=(), categorical=tuple(CategoricalFeature(name=n, rows=10) for n in "ab"))
    batch = make_batch(features, dense=None, categorical=np.array([[1, 2], [3, 4]], np.int32))
    assert batch.values.tolist() == [1, 3, 2, 4]
    assert batch.offsets.tolist() == [0, 1, 2, 3, 4]
    assert batch.dense.shape == (2, 0)
    assert batch.to("cpu").values.dtype == torch.int32


@pytest.mark.parametrize("wrong", [5, -1])
def test_an_id_outside_its_table_names_the_field(wrong: int) -> None:
    users = USERS.copy()
    users[1] = wrong
    with pytest.raises(DataError, match=rf"'user' holds the id {wrong}, .* rows 0 to 4"):
        make_batch(MIXED, dense=None, categorical=users, bags=[TAGS, GENRES])


def test_an_id_outside_its_table_in_a_bag_names_the_field() -> None:
    tags = Bags(values=np.array([9, 7], np.int32), lengths=TAGS.lengths)
    with pytest.raises(DataError, match="'tags'"):
        make_batch(MIXED, dense=None, categorical=USERS, bags=[tags, GENRES])


def test_an_id_outside_its_table_without_bags_names_the_field() -> None:
    features = Features(dense=(), categorical=tuple(CategoricalFeature(name=n, rows=3) for n in "ab"))
    with pytest.raises(DataError, match="'b'"):
        make_batch(features, dense=None, categorical=np.array([[1, 2], [0, 3]], np.int32))
