"""Results that outlive an interrupted measurement."""

from pathlib import Path

import pytest

from benchmarks.search.cache import Cache


def refuse() -> None:
    pytest.fail("it is known already")


def test_result_is_made_once_whoever_asks(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, other = Cache(path), Cache(path)
    assert first.get({"a": 1, "b": [2]}) is None
    assert first.get_or_make({"a": 1, "b": [2]}, lambda: {"ne": 0.1 + 0.2, "pair": (1, 2)}) == {
        "ne": 0.1 + 0.2,
        "pair": [1, 2],
    }
    assert other.get_or_make({"b": [2], "a": 1}, refuse) == {"ne": 0.1 + 0.2, "pair": [1, 2]}
    assert other.get_or_make({"a": 2}, lambda: 0) == 0
    assert first.get({"a": 2}) == 0


def test_line_cut_short_by_a_kill_loses_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Cache(path).get_or_make({"number": 1}, lambda: 10)
    path.write_bytes(path.read_bytes() + b'{"key": {"number": 2}, "val')
    cache = Cache(path)
    assert cache.get({"number": 2}) is None
    assert cache.get_or_make({"number": 2}, lambda: 20) == 20
    assert [Cache(path).get_or_make({"number": number}, refuse) for number in (1, 2)] == [10, 20]
    assert cache.get({"number": 2}) == 20
