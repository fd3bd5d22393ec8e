"""Trainings on a GPU that repeat bit by bit."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# cuBLAS keeps its order of summation in work spaces of fixed sizes alone; NVIDIA names this one for it. Read once by a
# process, at its first product of matrices.
CUBLAS_WORKSPACE = ":4096:8"


@contextmanager
def repeatable() -> Iterator[None]:
    """Let a GPU add up in one order, and give back afterwards what held before.

    torch then sums rows of tables by sorting instead of as threads come by (`index_add_`), and FBGEMM sums a row that
    occurs more than 1,024 times in a batch in one block of threads instead of several. The first costs a sort, the
    second the parallelism of the few most frequent rows. An operator without such a variant warns and runs on.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
    before, only_warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # a help for finding errors that costs a write
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)
        memory.fill_uninitialized_memory = filled
