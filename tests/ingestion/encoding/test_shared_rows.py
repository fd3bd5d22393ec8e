"""Ids are matched by the values they stand for, whatever order a new ingest gives them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.learned_hashing.learned_ids import LearnedIds, group
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder
from shunter.ingestion.encoding.shared_rows import shared_rows
from shunter.ingestion.encoding.vocabulary import HashedIds, IdMap, VocabularyIds

keys = st.lists(st.integers(1, 40), unique=True, max_size=12).map(lambda values: np.array(values, np.uint64))


def encoder(ids: IdMap, multi_valued: bool = False) -> Encoder:
    return Encoder((), (CategoricalField("user", ids, multi_valued),))


@given(now=keys, former=keys)
def test_each_value_that_both_know_is_matched_once_and_no_other(now: np.ndarray, former: np.ndarray) -> None:
    shared = shared_rows(encoder(VocabularyIds(now)), encoder(VocabularyIds(former)))["user"]
    matched = {(0, 0)} | {
        (list(now).index(key) + 1, list(former).index(key) + 1) for key in set(now.tolist()) & set(former.tolist())
    }
    assert set(zip(shared.now.tolist(), shared.former.tolist(), strict=True)) == matched
    assert len(set(shared.now.tolist())) == len(shared.now)


def test_crosses_of_other_columns_share_no_row() -> None:
    crosses = [
        Encoder((), (CategoricalField("both", HashedIds(3), cross=columns),))
        for columns in (("user", "shop"), ("user", "hour"))
    ]
    assert [*shared_rows(*crosses)] == []
    assert [*shared_rows(crosses[0], crosses[0])] == ["both"]


@given(now=keys, size=st.integers(1, 9))
def test_hashed_ids_go_to_each_of_their_values_and_back_from_the_first(now: np.ndarray, size: int) -> None:
    vocabulary, hashed = VocabularyIds(now), HashedIds(size)
    to_values = shared_rows(encoder(vocabulary), encoder(hashed))["user"]
    assert to_values.now.tolist() == list(range(vocabulary.rows))
    assert to_values.former.tolist() == [0, *hashed.ids(now).tolist()]
    back = shared_rows(encoder(hashed), encoder(vocabulary))["user"]
    first = {int(hashed.ids(now[place : place + 1])[0]): place + 1 for place in reversed(range(len(now)))}
    assert dict(zip(back.now.tolist(), back.former.tolist(), strict=True)) == {0: 0, **first}


def test_hashes_of_one_size_are_the_same_ids_and_of_others_are_not() -> None:
    same = shared_rows(encoder(HashedIds(5)), encoder(HashedIds(5)))["user"]
    assert same.now.tolist() == same.former.tolist() == [0, 1, 2, 3, 4, 5]
    assert shared_rows(encoder(HashedIds(5)), encoder(HashedIds(6)))["user"].now.tolist() == [0]


def test_learned_maps_are_matched_where_they_are_the_same_and_by_values_from_a_vocabulary() -> None:
    known = np.array([3, 4, 5, 6, 7, 8], np.uint64)
    ids, other = (LearnedIds.of(known, group(np.arange(6, 0, -1), np.arange(6.0)[:, None], rows)) for rows in (5, 4))
    same = shared_rows(encoder(ids), encoder(LearnedIds.from_arrays(ids.arrays)))["user"]
    assert same.now.tolist() == same.former.tolist() == list(range(ids.rows))
    assert shared_rows(encoder(ids), encoder(other))["user"].now.tolist() == [0]
    shared = shared_rows(encoder(ids), encoder(VocabularyIds(known)))["user"]
    first = {int(row): place + 1 for place, row in reversed(list(enumerate(ids.ids(known))))}
    assert dict(zip(shared.now.tolist(), shared.former.tolist(), strict=True)) == {0: 0, **first}


def test_fields_that_became_another_kind_or_are_gone_are_not_matched() -> None:
    ids = VocabularyIds(np.array([3, 4], np.uint64))
    assert shared_rows(encoder(ids), encoder(ids, multi_valued=True)) == {}
    assert shared_rows(encoder(ids), Encoder((), ())) == {}
