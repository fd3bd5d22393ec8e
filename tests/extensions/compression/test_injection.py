"""Errors of a memory: as many as their rate says, where the seed says, and taken back bit by bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from shunter.extensions.compression.robustness.memory import ErrorKind, MemoryErrors, injected


def memory_of(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(40, 8, generator=generator),
        torch.randint(0, 255, (40, 3), dtype=torch.uint8, generator=generator),
        torch.randn(40, generator=generator).bfloat16(),
        torch.empty(0, 4),
        torch.tensor(3),
    ]


def bits_of(tensors: list[Tensor]) -> np.ndarray:
    return np.unpackbits(
        np.concatenate([one.clone().reshape(-1).view(torch.uint8).numpy() for one in tensors if one.numel()])
    )


@given(kind=st.sampled_from(["flip", "stuck0", "stuck1", "rows"]), rate=st.floats(0, 1), seed=st.integers(0, 1_000))
def test_errors_are_taken_back_bit_by_bit_and_drawn_again_alike(kind: ErrorKind, rate: float, seed: int) -> None:
    tensors, errors = memory_of(seed), MemoryErrors(kind=kind, rate=rate)
    before, rows = bits_of(tensors), [tensors[:1], tensors[1:3]]
    with injected(tensors, rows, errors, seed) as count:
        damaged = bits_of(tensors)
        if kind == "flip":
            assert int((damaged != before).sum()) == count
    assert (bits_of(tensors) == before).all()
    with injected(tensors, rows, errors, seed):
        assert (bits_of(tensors) == damaged).all()
    if kind == "stuck0":
        assert (damaged <= before).all()
    if kind == "stuck1":
        assert (damaged >= before).all()


def test_the_share_of_bits_that_err_is_the_rate() -> None:
    tensor = torch.zeros(4_000, 10)
    counts = []
    for seed in range(20):
        with injected([tensor], [], MemoryErrors(rate=1e-3), seed) as count:
            counts.append(count)
    expected, error = 1_280_000 * 1e-3, (1_280_000 * 1e-3 / 20) ** 0.5
    assert np.mean(counts) == pytest.approx(expected, abs=4 * error)


def test_a_lost_row_is_lost_in_all_parts_of_it() -> None:
    codes, scale = torch.ones(50, 4, dtype=torch.uint8), torch.ones(50)
    with injected([codes, scale], [[codes, scale]], MemoryErrors(kind="rows", rate=0.3), seed=1) as count:
        assert 0 < count < 50
        assert int((codes == 0).all(1).sum()) == int((scale == 0).sum()) == count
        assert ((codes == 0).all(1) == (scale == 0)).all()
    assert codes.all()


def test_an_error_within_the_block_leaves_nothing_damaged() -> None:
    tensor = torch.ones(100)
    with pytest.raises(RuntimeError, match="within"), injected([tensor], [], MemoryErrors(rate=0.5), 0):
        raise RuntimeError("within")
    assert (tensor == 1).all()
