"""Rows out of a file: those of the array that was written, and what is wrong with a file is told."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shunter.errors import CheckpointError, HardwareError
from shunter.extensions.tiers.stored.row_file import BLOCK, RowFile, least_buffer_bytes


def written(path: Path, start: int, rows: int, dim: int) -> np.ndarray:
    numbers = np.random.default_rng(rows).random((rows, dim), np.float32)
    path.write_bytes(bytes(start) + numbers.tobytes())
    return numbers


def opened(path: Path, start: int, rows: int, dim: int, readers: int = 3, *, by_threads: bool = False) -> RowFile:
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        if by_threads:
            patch.setattr("shunter.extensions.tiers.stored.row_file.KernelReads", forbidden)
        return RowFile(file.fileno(), start, rows, dim, readers * least_buffer_bytes(dim))


def forbidden(descriptor: int) -> None:
    raise PermissionError


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    start=st.integers(0, 3_000).map(lambda number: 4 * number),
    dim=st.sampled_from([4, 12, 300, 1_500]),
    readers=st.integers(1, 20),
    by_threads=st.booleans(),
    data=st.data(),
)
def test_rows_are_those_that_were_written(
    tmp_path: Path, *, start: int, dim: int, readers: int, by_threads: bool, data: st.DataObject
) -> None:
    rows = 400
    numbers = written(tmp_path / "rows", start, rows, dim)
    file = opened(tmp_path / "rows", start, rows, dim, readers, by_threads=by_threads)
    for asked in data.draw(st.lists(st.sets(st.integers(0, rows - 1)), max_size=3)):
        which = np.array(sorted(asked), np.int64)
        assert np.array_equal(file.read(which), numbers[which])
    assert np.array_equal(file.read(np.arange(rows)), numbers)
    file.close()


def test_without_direct_reads_rows_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = written(tmp_path / "rows", 4, 3_000, 16)
    monkeypatch.setattr("shunter.extensions.tiers.stored.row_file._reopened", lambda one: (os.dup(one), False))
    file = opened(tmp_path / "rows", 4, 3_000, 16)
    for which in (np.arange(3_000), np.arange(0, 3_000, 117), np.array([2_999])):
        assert np.array_equal(file.read(which), numbers[which])
    os.truncate(tmp_path / "rows", 9_000)
    file._made = (9_000, (tmp_path / "rows").stat().st_mtime_ns)  # as if it had been noticed too late
    with pytest.raises(CheckpointError, match="was truncated"):
        file.read(np.array([0, 2_999]))


@pytest.mark.parametrize("by_threads", [False, True])
def test_a_file_that_is_cut_off_between_look_and_read_is_told(tmp_path: Path, *, by_threads: bool) -> None:
    written(tmp_path / "rows", 0, 3_000, 16)
    file = opened(tmp_path / "rows", 0, 3_000, 16, by_threads=by_threads)
    os.truncate(tmp_path / "rows", 2 * BLOCK)
    file._made = (2 * BLOCK, (tmp_path / "rows").stat().st_mtime_ns)  # as if it had been noticed too late
    with pytest.raises(CheckpointError, match="was truncated"):
        file.read(np.array([0, 1_000, 2_999]))


def test_what_the_kernel_refuses_is_told_and_what_comes_next_is_read(tmp_path: Path) -> None:
    numbers, which = written(tmp_path / "rows", 0, 40_000, 16), np.arange(0, 40_000, 200)
    file = opened(tmp_path / "rows", 0, 40_000, 16, readers=40)
    if file._kernel is None:
        pytest.skip("This system has no asynchronous reads past its page cache.")
    right, file._kernel._file = file._kernel._file, os.open(tmp_path, os.O_RDONLY)  # a folder
    with pytest.raises(HardwareError, match="cannot be read"):
        file.read(which)
    file._kernel._file = right
    assert np.array_equal(file.read(which), numbers[which])


def test_rows_of_neighbouring_blocks_are_one_read(tmp_path: Path) -> None:
    numbers = written(tmp_path / "rows", 0, 4_096, 16)  # 64 rows to a block
    file = opened(tmp_path / "rows", 0, 4_096, 16, readers=1)
    which = np.array([0, 5, 63, 1_000, 4_095])
    assert np.array_equal(file.read(which), numbers[which])
    assert (file.counts.reads, file.counts.read_bytes, file.counts.rows) == (3, 3 * BLOCK, 5)


def test_a_file_that_was_removed_is_read_all_the_same(tmp_path: Path) -> None:
    numbers = written(tmp_path / "rows", 8, 50, 8)
    file = opened(tmp_path / "rows", 8, 50, 8)
    (tmp_path / "rows").unlink()
    assert np.array_equal(file.read(np.arange(50)), numbers)


def cut_off(path: Path) -> None:
    os.truncate(path, 5_000)


def written_over(path: Path) -> None:
    numbers = bytearray(path.read_bytes())
    numbers[100] ^= 1
    path.write_bytes(numbers)
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("damage", [cut_off, written_over])
def test_a_file_that_was_changed_is_not_read(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    written(tmp_path / "rows", 0, 1_000, 8)
    file = opened(tmp_path / "rows", 0, 1_000, 8)
    damage(tmp_path / "rows")
    with pytest.raises(CheckpointError, match="was changed while"):
        file.read(np.arange(3))


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "rows", 0, 100, 8)
    with pytest.raises(CheckpointError, match="too short"):
        opened(tmp_path / "rows", 0, 101, 8)


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "rows", 0, 100, 8)
    file = opened(tmp_path / "rows", 0, 100, 8)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(HardwareError, match="Input/output"):
        file.read(np.arange(3))
