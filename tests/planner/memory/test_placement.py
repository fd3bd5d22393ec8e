"""Where tables go: within what there is, and close to the exact program, beside a search through all placements."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.memory.placement import Load, largest_load, place_exactly, place_greedily, rooms
from planner.memory.servers import Tier

FAST = Tier(capacity_bytes=100, read_bytes_per_second=100, write_bytes_per_second=100, granule_bytes=1)
LARGE = Tier(capacity_bytes=300, read_bytes_per_second=20, write_bytes_per_second=10, granule_bytes=1)
BLOCK = Tier(
    capacity_bytes=2_000, read_bytes_per_second=5, write_bytes_per_second=5, granule_bytes=8, reads_per_second=9
)
LOADS = st.lists(
    st.builds(Load, size=st.floats(1, 90), read=st.floats(0.1, 50), written=st.floats(0.1, 5)), min_size=1, max_size=7
)


def fits(loads: list[Load], tiers: list[Tier], places: list[int] | tuple[int, ...]) -> bool:
    taken = np.zeros(len(tiers))
    np.add.at(taken, list(places), [load.size for load in loads])
    return bool((taken <= np.array(rooms(tiers, 0.0)) * (1 + 1e-6)).all())


@settings(deadline=None, max_examples=60)
@given(LOADS, st.booleans())
def test_greedy_fits_and_the_exact_program_is_the_best_of_all(loads: list[Load], has_block: bool) -> None:
    tiers = [FAST, LARGE, *([BLOCK] if has_block else [])]
    every = [one for one in product(range(len(tiers)), repeat=len(loads)) if fits(loads, tiers, one)]
    exact, greedy = place_exactly(loads, tiers), place_greedily(loads, tiers)
    assert (exact is None) == (not every)
    if exact is None:
        assert greedy is None
        return
    best = min(largest_load(loads, tiers, one) for one in every)
    assert largest_load(loads, tiers, exact) == pytest.approx(best, rel=1e-3, abs=1e-3)
    if greedy is not None:
        assert fits(loads, tiers, greedy)


def test_greedy_is_near_the_exact_program_on_models_of_many_tables() -> None:
    ratios: list[float] = []
    for seed in range(12):
        random = np.random.default_rng(seed)
        sizes = random.lognormal(0, 1.5, 30)
        sizes *= 250 / sizes.sum()
        loads = [Load(float(size), *map(float, random.lognormal(0, 1, 2))) for size in np.minimum(sizes, 60)]
        tiers = [FAST, LARGE]
        greedy, exact = place_greedily(loads, tiers), place_exactly(loads, tiers)
        assert greedy is not None
        assert exact is not None
        ratios.append(largest_load(loads, tiers, greedy) / largest_load(loads, tiers, exact))
    assert min(ratios) >= 1 - 1e-3
    assert np.median(ratios) <= 1.02
    assert max(ratios) <= 1.2


def test_what_a_cache_is_kept_for_is_left() -> None:
    loads = [Load(70, 1, 1)]
    assert place_greedily(loads, [FAST, LARGE, BLOCK]) == [0]
    assert place_greedily(loads, [FAST, LARGE, BLOCK], reserved=0.5) == [1]
    assert place_greedily(loads, [FAST, LARGE, BLOCK], reserved=0.9) == [2]
