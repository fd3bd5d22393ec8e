"""Check bits: one bit that flips in a word is put right wherever it is, two are noticed and left alone."""

from itertools import combinations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from shunter.extensions.compression.packing import CHECKS, bytes_with_checks, correct_flips, with_checks

WORD_BITS = 64


def weights(seed: int = 0) -> dict[str, Tensor]:
    """Of several types, 61 bytes in all, so that words cross from one to the next and the last is not full."""
    torch.manual_seed(seed)
    return {
        "codes": torch.randint(0, 256, (3, 5), dtype=torch.uint8),
        "scale": torch.randn(3).bfloat16(),
        "rows": torch.randint(0, 9, (4,), dtype=torch.int32),
        "bias": torch.randn(6),
        "none": torch.empty(0),
    }


def flipped(tensors: dict[str, Tensor], bits: list[tuple[str, int]]) -> dict[str, Tensor]:
    found = {name: tensor.clone() for name, tensor in tensors.items()}
    for name, bit in bits:
        found[name].view(-1).view(torch.uint8).numpy()[bit // 8] ^= 1 << bit % 8
    return found


def are_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_every_bit_that_flips_alone_is_put_right_those_of_the_check_bits_too() -> None:
    whole = with_checks(weights())
    for name, tensor in whole.items():
        for bit in range(8 * tensor.nbytes):
            assert are_equal(correct_flips(flipped(whole, [(name, bit)])), weights()), (name, bit)


def test_of_two_bits_in_a_word_none_is_changed_more() -> None:
    word = {"word": torch.from_numpy(np.random.default_rng(0).integers(0, 256, 8, dtype=np.uint8))}
    whole = with_checks(word)
    places = [("word", bit) for bit in range(WORD_BITS)] + [(CHECKS, bit) for bit in range(8)]
    for two in combinations(places, 2):
        damaged = flipped(whole, list(two))
        assert torch.equal(correct_flips(damaged)["word"], damaged["word"]), two


@given(seed=st.integers(0, 1_000), words=st.sets(st.integers(0, 7), min_size=1), bit=st.integers(0, 39))
def test_one_bit_in_each_of_many_words_is_put_right(seed: int, words: set[int], bit: int) -> None:
    whole = with_checks({"all": torch.from_numpy(np.random.default_rng(seed).integers(0, 256, 61, dtype=np.uint8))})
    damaged = flipped(whole, [("all", WORD_BITS * word + bit) for word in words])
    assert torch.equal(correct_flips(damaged)["all"], whole["all"])


@given(size=st.integers(0, 500))
def test_what_is_left_of_the_bytes_has_room_with_its_check_bits(size: int) -> None:
    room = bytes_with_checks(size)
    whole = with_checks({"all": torch.zeros(room, dtype=torch.uint8)})
    assert sum(tensor.nbytes for tensor in whole.values()) <= size


def test_without_check_bits_nothing_is_changed() -> None:
    assert are_equal(correct_flips(weights()), weights())
