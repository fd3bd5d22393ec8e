"""Data of the benchmark are the same at each run, skewed and clustered; memory is told where it can be measured."""

from pathlib import Path

import numpy as np

from benchmarks.large_rankings import generated, headline_of, read_gowalla


def test_generated_pairs_are_distinct_repeatable_and_skewed() -> None:
    pairs = generated(users=300, items=1_000, pairs=3_000)
    assert pairs.equals(generated(users=300, items=1_000, pairs=3_000))
    assert len(pairs.drop_duplicates()) == 3_000
    assert (pairs["user"].max() < 300, pairs["item"].max() < 1_000) == (True, True)
    counts = np.sort(np.bincount(pairs["item"], minlength=1_000))
    assert counts[-100:].sum() > counts[:500].sum()


def test_a_line_of_gowalla_is_a_user_with_the_items(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 3 4\n1 3\n2\n")
    pairs = read_gowalla(tmp_path / "train.txt")
    assert pairs.to_numpy().tolist() == [[0, 3], [0, 4], [1, 3]]


def test_memory_is_set_beside_what_was_taken_beyond_popularity() -> None:
    alone = {"popularity": (5.0, 1 << 30), "ease": (300.0, 3 << 30)}
    runs = {name: {"alone": {"seconds": seconds, "peak_bytes": taken}} for name, (seconds, taken) in alone.items()}
    found = headline_of(runs, {"popularity": 1_000, "ease": 5 << 29})
    assert found == {"popularity_seconds": 5.0, "ease_seconds": 300.0, "ease_memory_told_over_taken": 1.25}
