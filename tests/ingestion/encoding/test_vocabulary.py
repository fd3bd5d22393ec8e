"""Counting values and giving ids."""

from collections import Counter
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.ingestion.encoding import vocabulary
from shunter.ingestion.encoding.vocabulary import HashedIds, ValueCounter, VocabularyIds, access_curve, count_keys

KEYS = st.lists(st.integers(0, 20), max_size=60)


@given(st.lists(KEYS, max_size=8))
def test_counter_agrees_with_counting_one_by_one(batches: list[list[int]]) -> None:
    counter = ValueCounter()
    for batch in batches:
        counter.add(*count_keys(np.array(batch, np.uint64)))

    keys, counts = counter.by_frequency()

    expected = Counter(key for batch in batches for key in batch)
    missing = expected.pop(0, 0)
    assert list(zip(keys.tolist(), counts.tolist(), strict=True)) == sorted(
        expected.items(), key=lambda item: (-item[1], item[0])
    )
    assert (counter.missing, counter.total) == (missing, missing + expected.total())


def test_counter_grows_beyond_its_first_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_FIRST_CAPACITY", 10)
    random = np.random.default_rng(0)
    batches = random.integers(1, 200, (50, 30)).astype(np.uint64)
    counter = ValueCounter()
    for batch in batches:
        counter.add(*count_keys(batch))

    assert dict(zip(*map(np.ndarray.tolist, counter.by_frequency()), strict=True)) == Counter(batches.ravel().tolist())


def test_memory_limit_forgets_rare_values_and_keeps_frequent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_FIRST_CAPACITY", 20)
    counter = ValueCounter(limit=30)
    rare = np.arange(1000, 3000, dtype=np.uint64).reshape(200, 10)
    for batch in rare:
        counter.add(*count_keys(np.concatenate([batch, np.repeat(np.arange(1, 6, dtype=np.uint64), 2)])))

    keys, counts = counter.by_frequency()

    assert keys[:5].tolist() == [1, 2, 3, 4, 5]
    assert counts[:5].tolist() == [400] * 5
    assert len(keys) < 100
    assert counter.total == 200 * 20


def test_ids_are_ranks_and_zero_is_unknown() -> None:
    ids = VocabularyIds(np.array([70, 30, 2**63 + 5], np.uint64))

    assert ids.rows == 4
    assert ids.ids(np.array([30, 0, 2**63 + 5, 71, 70], np.uint64)).tolist() == [2, 0, 3, 0, 1]
    assert VocabularyIds(np.empty(0, np.uint64)).ids(np.array([5], np.uint64)).tolist() == [0]


def test_hashed_ids_stay_in_range_and_spread() -> None:
    ids = HashedIds(16).ids(np.arange(1, 2001, dtype=np.uint64))

    assert set(ids.tolist()) == set(range(1, 17))
    assert np.bincount(ids)[1:].min() > 2000 / 16 / 2
    assert HashedIds(16).ids(np.zeros(2, np.uint64)).tolist() == [0, 0]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200))
def test_access_curve_rises_to_one_and_is_concave(counts: list[int]) -> None:
    curve = access_curve(np.array(counts))

    if sum(counts) == 0:
        assert curve == ()
        return
    shares, lookups = np.array(curve).T
    assert curve[-1] == (1, 1)
    assert (np.diff(shares) > 0).all()
    slopes = np.diff(lookups, prepend=0) / np.diff(shares, prepend=0)
    assert (np.diff(slopes) <= 1e-9).all()


@given(
    st.lists(
        st.tuples(st.integers(1, 2**64 - 1), st.integers(1, 4) | st.integers(65_530, 65_540)), unique_by=itemgetter(0)
    )
)
def test_values_come_by_frequency_and_among_equals_by_key(values: list[tuple[int, int]]) -> None:
    counter = ValueCounter()
    counter.add(np.array([key for key, _ in values], np.uint64), np.array([count for _, count in values], np.int64))

    keys, counts = counter.by_frequency()

    found = list(zip(keys.tolist(), counts.tolist(), strict=True))
    assert found == sorted(values, key=lambda value: (-value[1], value[0]))
