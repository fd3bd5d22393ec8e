"""Where tables go: within what there is, and close to the exact program, beside a search through all placements."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.extensions.tiers.memory.nodes import Load, place_greedily, table_capacities, tier_loads
from shunter.extensions.tiers.memory.servers import Tier

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
    return bool((taken <= np.array(table_capacities(tiers, 0.0)) * (1 + 1e-6)).all())


@settings(deadline=None, max_examples=30)
@given(LOADS, st.booleans())
def test_greedy_fits_whenever_it_finds_a_placement(loads: list[Load], has_block: bool) -> None:
    tiers = [FAST, LARGE, *([BLOCK] if has_block else [])]
    greedy = place_greedily(loads, tiers)
    if greedy is not None:
        assert fits(loads, tiers, greedy)
    elif has_block:
        assert not fits(loads, tiers, [2] * len(loads))


def test_greedy_is_near_the_best_of_all_placements() -> None:
    tables, ratios = 16, []
    everywhere = np.arange(2**tables)[:, None] >> np.arange(tables) & 1
    for seed in range(12):
        random = np.random.default_rng(seed)
        sizes = random.lognormal(0, 1.5, tables)
        sizes = np.minimum(sizes * 250 / sizes.sum(), 60)
        loads = [Load(float(size), *map(float, random.lognormal(0, 1, 2))) for size in sizes]
        tiers = [FAST, LARGE]
        greedy = place_greedily(loads, tiers)
        assert greedy is not None
        is_room = (1 - everywhere) @ sizes <= table_capacities(tiers, 0.0)[0]
        fast, large = ([load.share_of(tier) for load in loads] for tier in tiers)
        every = np.maximum((1 - everywhere) @ fast, everywhere @ large)
        ratios.append(
            max(tier_loads(loads, tiers, greedy))
            / every[is_room & (everywhere @ sizes <= table_capacities(tiers, 0.0)[1])].min()
        )
    assert min(ratios) >= 1 - 1e-9
    assert np.median(ratios) <= 1.02
    assert max(ratios) <= 1.2


def test_what_a_cache_is_kept_for_is_left() -> None:
    loads = [Load(70, 1, 1)]
    assert place_greedily(loads, [FAST, LARGE, BLOCK]) == [0]
    assert place_greedily(loads, [FAST, LARGE, BLOCK], reserved=0.5) == [1]
    assert place_greedily(loads, [FAST, LARGE, BLOCK], reserved=0.9) == [2]
