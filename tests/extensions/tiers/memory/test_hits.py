"""Predicted hits beside a cache that runs: within two points on batches that are drawn alike."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.tiers.memory.demand import Segment, TableDemand, segments_of
from shunter.extensions.tiers.memory.hits import Passes, predict_hits, predict_recent_hits
from shunter.extensions.tiers.row_use import use_levels
from shunter.extensions.tiers.slots import SlotMap

ROWS, BATCH, LOOKUPS = 5_000, 64, 2


def zipf_shares(exponent: float) -> np.ndarray:
    shares = np.arange(1, ROWS + 1, dtype=np.float64) ** -exponent
    return shares / shares.sum()


def demand(shares: np.ndarray, points: int = 40) -> TableDemand:
    ranks = np.unique(np.geomspace(1, ROWS, points).astype(int))
    total = np.cumsum(shares)
    curve = [(rank / ROWS, float(total[rank - 1])) for rank in ranks]
    return TableDemand("ids", ROWS, 16, LOOKUPS, segments_of(curve, ROWS))


def measured_miss_rate(shares: np.ndarray, slots: int, window: int, levels: np.ndarray | None) -> float:
    """Of the cache that training has, after it has filled."""
    random, cache = np.random.default_rng(0), SlotMap(ROWS, slots, window, levels)
    asked = missed = 0
    for step in range(700):
        rows = np.unique(random.choice(ROWS, BATCH * LOOKUPS, p=shares))
        arriving = len(cache.admit(rows).arriving)
        if step >= 300:
            asked, missed = asked + len(rows), missed + arriving
    return missed / asked


@pytest.mark.parametrize("exponent", [0.6, 1.05, 1.3])
@pytest.mark.parametrize(("share", "window"), [(0.05, 1), (0.2, 1), (0.2, 4), (0.5, 4)])
def test_misses_are_those_of_the_cache_that_training_has(exponent: float, share: float, window: int) -> None:
    shares = zipf_shares(exponent)
    table = demand(shares)
    slots = int(share * ROWS)
    predicted = predict_hits([table], BATCH, slots * table.row_bytes, window).miss_rate
    levels = np.repeat(use_levels(table.uses()), np.round([one.rows for one in table.segments]).astype(int))
    assert abs(predicted - measured_miss_rate(shares, slots, window, levels)) < 0.02


@pytest.mark.parametrize("exponent", [0.6, 1.05, 1.3])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_misses_of_a_cache_of_what_was_used_last(exponent: float, share: float) -> None:
    shares = zipf_shares(exponent)
    table = demand(shares)
    slots = int(share * ROWS)
    predicted = predict_recent_hits([table], BATCH, slots * table.row_bytes).miss_rate
    assert abs(predicted - measured_miss_rate(shares, slots, 1, None)) < 0.02
    assert predict_hits([table], BATCH, slots * table.row_bytes).miss_rate <= predicted + 1e-9


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_a_larger_cache_misses_no_more(parts: list[float]) -> None:
    tables = [demand(zipf_shares(0.9)), demand(zipf_shares(1.2))]
    whole = sum(table.total_bytes for table in tables)
    found = [predict_hits(tables, BATCH, part * whole).miss_rate for part in sorted(parts)]
    assert all(before >= after - 1e-9 for before, after in pairwise(found))
    assert predict_hits(tables, BATCH, whole).miss_rate == 0
    assert predict_hits(tables, BATCH, 0).miss_rate == 1


def test_distinct_rows_are_those_that_are_drawn() -> None:
    shares = zipf_shares(1.05)
    random = np.random.default_rng(1)
    drawn = [len(np.unique(random.choice(ROWS, BATCH * LOOKUPS, p=shares))) for _ in range(400)]
    assert demand(shares).distinct_rows(BATCH) == pytest.approx(np.mean(drawn), rel=0.02)


def test_more_rows_are_each_asked_for_more_seldom() -> None:
    table = TableDemand("ids", 10, 4, 1, (Segment(2, 0.4), Segment(8, 0.025))).scaled(100)
    assert table.rows == sum(one.rows for one in table.segments) == 1_000
    assert sum(one.rows * one.share for one in table.segments) == pytest.approx(1)


@pytest.mark.parametrize("exponent", [0.8, 1.05])
@pytest.mark.parametrize(("share", "passes"), [(0.2, 1), (0.2, 4), (0.5, 1), (0.5, 3)])
def test_misses_of_a_training_count_rows_that_come_first(exponent: float, share: float, passes: int) -> None:
    """Of passes in random order over the same samples, as an epoch is; the cache is empty at first."""
    random = np.random.default_rng(2)
    drawn = random.choice(ROWS, 20_000 * LOOKUPS, p=zipf_shares(exponent)).reshape(-1, LOOKUPS)
    counts = -np.sort(-np.bincount(drawn.ravel(), minlength=ROWS))
    table = demand(counts / counts.sum())
    rank = np.empty(ROWS, np.int64)
    rank[np.argsort(-np.bincount(drawn.ravel(), minlength=ROWS), kind="stable")] = np.arange(ROWS)
    levels = np.repeat(use_levels(table.uses()), np.round([one.rows for one in table.segments]).astype(int))
    slots = int(share * ROWS)
    cache = SlotMap(ROWS, slots, 2, levels)
    asked = missed = 0
    for _ in range(passes):
        samples = random.permutation(rank[drawn])
        for start in range(0, len(samples), BATCH):
            rows = np.unique(samples[start : start + BATCH])
            asked, missed = asked + len(rows), missed + len(cache.admit(rows).arriving)
    training = Passes(len(drawn), passes)
    found = predict_hits([table], BATCH, slots * table.row_bytes, 2, training).miss_rate
    for_ever = predict_hits([table], BATCH, slots * table.row_bytes, 2).miss_rate
    assert abs(found - missed / asked) < 0.02
    assert for_ever < found
