"""Dropping files from the page cache, on a real file."""

import mmap
from pathlib import Path

import pytest

from shunter.hardware.devices.page_cache import drop_from_page_cache, page_cache_share


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(2**20))
    drop_from_page_cache([path])
    if page_cache_share([path]) != 0:
        pytest.skip("the file system keeps files in memory")
    return path


def test_what_was_read_is_cached_until_it_is_dropped(file: Path) -> None:
    assert file.read_bytes() == bytes(2**20)
    assert page_cache_share([file]) == 1
    drop_from_page_cache([file])
    assert page_cache_share([file]) == 0


def test_what_is_mapped_stays(file: Path) -> None:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[::4096]) == 0
        drop_from_page_cache([file])
        assert page_cache_share([file]) == 1


def test_no_file_has_no_share() -> None:
    assert page_cache_share([]) is None
