"""Splitting never leaks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import DataError
from shunter.ingestion.batch import Bag, Columns, RawBatch
from shunter.ingestion.encoding import split
from shunter.ingestion.encoding.split import HashSplit, TimeSplit, UserTimeSplit
from shunter.ingestion.schema import Split


def batch_of(numbers: np.ndarray, times: np.ndarray | None = None) -> RawBatch:
    columns = Columns(numbers.astype(np.float32)[None], numbers.astype(np.uint64)[None], [])
    return RawBatch(np.zeros(len(numbers), np.float32), columns, times)


@given(st.lists(st.integers(0, 30), min_size=3, max_size=200).filter(lambda times: len(set(times)) >= 3))
def test_no_time_is_in_two_parts_and_the_order_is_kept(numbers: list[int]) -> None:
    times = np.array(numbers, np.float64)

    splitter = TimeSplit.fit([times[:50], times[50:]], Split())
    parts = splitter.assign(batch_of(times, times))

    groups = [times[parts == part] for part in range(3)]
    assert all(len(group) for group in groups)
    assert groups[0].max() < groups[1].min() <= groups[1].max() < groups[2].min()
    assert splitter.is_in_order == (numbers == sorted(numbers))


def test_time_cuts_meet_the_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.random.default_rng(0).permutation(10_000).astype(np.float64)
    shares = Split(train=0.7, validation=0.1, test=0.2)
    exact = np.bincount(TimeSplit.fit([times], shares).assign(batch_of(times, times)))
    assert exact.tolist() == [7000, 1000, 2000]

    monkeypatch.setattr(split, "_SAMPLED_TIMES", 500)
    sampled = TimeSplit.fit(np.array_split(times, 33), shares).assign(batch_of(times, times))
    assert np.abs(np.bincount(sampled) - exact).max() < 400


def test_too_few_times_are_refused() -> None:
    with pytest.raises(DataError, match="2 different readable times"):
        TimeSplit.fit([np.array([1.0, 2.0, 2.0])], Split())


def test_equal_rows_share_a_part_whatever_their_place_and_batch() -> None:
    numbers = np.random.default_rng(1).integers(0, 500, 5000)

    parts = HashSplit(Split(), seed=3).assign(batch_of(numbers))
    again = HashSplit(Split(), seed=3).assign(batch_of(numbers[::-1]))

    assert np.array_equal(parts[::-1], again)
    assert all(len(set(parts[numbers == number])) == 1 for number in range(500))


def test_hash_meets_the_shares_and_depends_on_the_seed() -> None:
    numbers = np.arange(50_000)

    first, second = (HashSplit(Split(), seed).assign(batch_of(numbers)) for seed in (0, 1))

    for parts in (first, second):
        assert np.bincount(parts) / len(parts) == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
    # Independent splits agree on 0.8² + 0.1² + 0.1² of the rows.
    assert (first == second).mean() == pytest.approx(0.66, abs=0.02)


def test_bags_decide_too_but_not_the_order_of_their_values() -> None:
    def split_of(*values: list[int]) -> list[int]:
        keys = np.array([value for row in values for value in row], np.uint64)
        bag = Bag(keys, np.cumsum([0, *map(len, values)]))
        columns = Columns(np.empty((0, len(values)), np.float32), np.empty((0, len(values)), np.uint64), [bag])
        return HashSplit(Split(), 0).assign(RawBatch(np.zeros(len(values), np.float32), columns)).tolist()

    assert split_of([1, 2, 3], []) == split_of([3, 1, 2], [])
    assert len(set(split_of(*[[value] for value in range(1, 60)]))) == 3


def test_time_range_is_that_of_all_rows_whatever_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.ingestion.encoding.split._SAMPLED_TIMES", 10)
    times = np.random.default_rng(0).permutation(1_000).astype(float)
    split = TimeSplit.fit(np.array_split(times, 9), Split())
    assert split.time_range == (0.0, 999.0)


def per_user(
    way: str, users: np.ndarray, times: np.ndarray, shares: tuple[float, float, float] = (0.6, 0.2, 0.2)
) -> np.ndarray:
    named = dict(zip(("train", "validation", "test"), shares, strict=True))
    splitter = UserTimeSplit.fit(0, users, times, Split.model_validate({**named, "per_user": way}))
    columns = Columns(np.empty((0, len(users)), np.float32), users[None], [])
    return splitter.assign(RawBatch(np.zeros(len(users), np.float32), columns, times))


def test_the_last_time_of_each_user_is_left_out() -> None:
    rng = np.random.default_rng(1)
    users, times = rng.integers(0, 40, 500).astype(np.uint64), rng.integers(0, 60, 500).astype(np.float64)
    parts = per_user("leave_one_out", users, times)
    for user in range(40):
        of_user = times[users == user]
        *_, before, last = np.unique(of_user) if len(np.unique(of_user)) > 2 else [0, np.inf, np.inf]
        expected = np.select([of_user == last, of_user == before], [2, 1], 0)
        assert parts[users == user].tolist() == ([0] * len(of_user) if user == 0 else expected.tolist())


def test_each_user_is_split_by_the_shares_of_its_times() -> None:
    users = np.repeat(np.array([1, 2, 3, 4], np.uint64), [10, 5, 3, 2])
    times = np.concatenate([np.arange(10), np.arange(5)[::-1], [1, 1, 1], [1, 2]]).astype(np.float64)
    parts = per_user("shares", users, times)
    assert parts.tolist() == [0] * 6 + [1] * 2 + [2] * 2 + [2, 1, 0, 0, 0] + [0] * 5
    assert parts.tolist() == per_user("shares", users[::-1], times[::-1])[::-1].tolist()


@pytest.mark.parametrize("shares", [(0.5, 0.1, 0.4), (0.1, 0.1, 0.8), (0.8, 0.1, 0.1), (0.05, 0.9, 0.05)])
def test_each_part_has_a_time_of_each_user_with_three(shares: tuple[float, float, float]) -> None:
    users = np.repeat(np.arange(1, 40, dtype=np.uint64), np.arange(3, 42))
    times = np.concatenate([np.arange(count) for count in range(3, 42)]).astype(float)
    parts = per_user("shares", users, times, shares)
    assert all(set(parts[users == user]) == {0, 1, 2} for user in range(1, 40))


def test_rows_without_a_user_are_in_training() -> None:
    assert per_user("leave_one_out", np.zeros(4, np.uint64), np.arange(4.0)).tolist() == [0] * 4
