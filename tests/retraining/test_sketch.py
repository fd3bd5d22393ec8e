"""The sample of values: exact while few, near the truth when many, and comparable between days."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.retraining.figures import FieldFigures, KeySketch, new_share


def field(*batches: np.ndarray, size: int = 1_024) -> FieldFigures:
    sketch = KeySketch(size)
    for batch in batches:
        sketch.add(batch.astype(np.uint64))
    return FieldFigures(
        values=sketch.values,
        missing_share=0.0,
        distinct=sketch.distinct,
        keys=tuple(sketch.keys.tolist()),
        counts=tuple(sketch.counts.tolist()),
        complete=sketch.complete,
    )


@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=4), st.integers(2, 70))
def test_values_kept_are_counted_exactly_however_they_come(batches: list[list[int]], size: int) -> None:
    values = [value for batch in batches for value in batch if value]
    found = field(*(np.array(batch) for batch in batches), size=size)
    distinct = set(values)
    assert found.values == len(values)
    assert found.complete == (len(distinct) <= size)
    assert len(found.keys) == min(size, len(distinct))
    if found.complete:
        assert found.distinct == len(distinct)
        assert sorted(found.counts) == sorted(values.count(value) for value in distinct)
    again = field(np.array(values[::-1], np.uint64), size=size)
    assert (again.keys, again.counts) == (found.keys, found.counts)


def test_many_distinct_values_are_estimated_within_a_tenth() -> None:
    random = np.random.default_rng(0)
    found = field(*np.array_split(random.integers(1, 2**60, 50_000), 7))
    assert found.distinct == pytest.approx(50_000, rel=0.1)


def test_share_of_new_values_is_that_of_the_rows_that_hold_them() -> None:
    before = field(np.array([1, 2, 3]))
    assert new_share(field(np.array([1, 1, 1, 9])), [before]) == 0.25
    assert new_share(field(np.array([1, 2])), [before]) == 0.0
    assert new_share(field(np.array([7])), [before, field(np.array([7]))]) == 0.0
    assert new_share(field(np.array([])), [before]) is None
    assert new_share(before, []) is None


def test_share_of_new_values_is_estimated_from_samples_of_large_fields() -> None:
    random = np.random.default_rng(1)
    days = [field(random.choice(np.arange(1, 20_000), 30_000)) for _ in range(3)]
    assert new_share(days[2], days[:2]) == pytest.approx(0.05, abs=0.05)
    shifted = field(random.choice(np.arange(10_000, 30_000), 30_000))
    assert new_share(shifted, days) == pytest.approx(0.5, abs=0.12)
