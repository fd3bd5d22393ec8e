"""Want of memory is told from other failures by whoever asks, always in the same way."""

import pytest

from shunter.engine.memory import is_out_of_memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (MemoryError(), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("not enough memory"), False),
    ],
)
def test_only_want_of_memory_counts_as_such(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected
