"""A map without keys gives every known key its number, and knows most others to be unknown."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.learned_hashing.learned_ids import StaticMap
from shunter.ingestion.encoding.vocabulary import mix


@given(st.dictionaries(st.integers(1, 2**64 - 1), st.integers(0, 2**20), max_size=60))
def test_every_key_has_its_number(numbers: dict[int, int]) -> None:
    keys, wanted = np.array(list(numbers), np.uint64), np.array(list(numbers.values()), np.int64)
    assert StaticMap.build(keys, wanted).numbers(keys).tolist() == wanted.tolist()


def test_it_takes_a_third_more_bits_than_numbers_and_check_have_and_tells_most_unknown_keys() -> None:
    keys = mix(np.arange(1, 20_001, dtype=np.uint64))
    known, unknown = keys[:10_000], keys[10_000:]
    numbers = np.arange(10_000) % 256
    map_ = StaticMap.build(known, numbers)
    assert np.array_equal(map_.numbers(known), numbers)
    assert map_.bytes < 10_000 * (8 + 4) / 8 * 1.25
    assert (map_.numbers(unknown) >= 0).mean() < 0.075  # 1 in 16
