"""The fewest nodes of a server on which a model trains as fast as is asked, and what they take: simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shunter.planner.memory.demand import TableDemand
from shunter.planner.memory.hits import predict_hits
from shunter.planner.memory.placement import USABLE, Load, place_greedily, rooms, tier_loads
from shunter.planner.memory.servers import Server

MOST_NODES = 1_024
RESERVES = (0.0, 0.1, 0.25, 0.5, 0.75)  # shares of the fast tiers that are tried as a cache of the slow one
BUSY = 0.7  # of what a tier reaches at most, beyond which it is not planned
SECONDS_A_DAY = 86_400
JOULES_A_KWH = 3.6e6


@dataclass(frozen=True)
class Ask:
    """Training demand for which nodes are planned.

    Attributes:
        tables: The tables.
        flops_per_sample: Of the layers, forward and backward.
        batch: Samples of a step, of all nodes together.
        samples_per_second: Rate that must be reached.
        miss_factor: By which the predicted misses of the cache are multiplied, to see what depends on them.
    """

    tables: tuple[TableDemand, ...]
    flops_per_sample: float
    batch: int
    samples_per_second: float
    miss_factor: float = 1.0


@dataclass(frozen=True)
class Plan:
    """Feasible plan of nodes.

    Attributes:
        nodes: How many.
        places: Tier of each table.
        cache_bytes: Of each node, for rows of the slow tier.
        miss_rate: Share of the different rows of a step, of tables on the slow tier, that its cache lacks.
        step_seconds: Time of a step.
        samples_per_second: Rate at which they train.
        kwh: Energy of a billion samples.
        cost: Of a billion samples, US dollars.
        limited_by: What the step waits for.
    """

    nodes: int
    places: Mapping[str, str]
    cache_bytes: float
    miss_rate: float
    step_seconds: float
    samples_per_second: float
    kwh: float
    cost: float
    limited_by: str

    @property
    def hours(self) -> float:
        """Hours for a billion samples."""
        return 1e9 / self.samples_per_second / 3600


def fewest_nodes(server: Server, ask: Ask) -> Plan | None:
    """The plan of the fewest nodes; among those the fastest. None where even `MOST_NODES` do not hold."""
    low, high = 0, 1
    while high <= MOST_NODES and plan_for(server, ask, high) is None:
        low, high = high, 2 * high
    if high > MOST_NODES:
        return None
    while high - low > 1:  # more nodes never hold less
        middle = (low + high) // 2
        low, high = (low, middle) if plan_for(server, ask, middle) else (middle, high)
    return plan_for(server, ask, high)


def plan_for(server: Server, ask: Ask, nodes: int) -> Plan | None:
    """The fastest plan for so many nodes; None where none reaches the rate."""
    has_block = any(tier.is_block for tier in server.tiers.values())
    found = [_plan(server, ask, nodes, reserved) for reserved in (RESERVES if has_block else RESERVES[:1])]
    holding = [plan for plan in found if plan is not None and plan.samples_per_second >= ask.samples_per_second]
    return min(holding, key=lambda plan: plan.step_seconds, default=None)


def _plan(server: Server, ask: Ask, nodes: int, reserved: float) -> Plan | None:
    names, tiers = list(server.tiers), list(server.tiers.values())
    loads = [Load.of(table, nodes, ask.samples_per_second, ask.batch) for table in ask.tables]
    places = place_greedily(loads, tiers, reserved)
    if places is None:
        return None
    taken = np.zeros(len(tiers))
    np.add.at(taken, places, [load.size for load in loads])
    left = np.array([0.0 if tier.is_block else room for room, tier in zip(rooms(tiers, 0.0), tiers, strict=True)])
    left = np.maximum(left - taken, 0.0)
    on_slow = [tiers[place].is_block for place in places]
    # What is read from the slow tier lies in a cache then, which takes of the time of the tiers that it is in.
    busy = tier_loads(loads, tiers, places)
    cached = [load for load, is_slow in zip(loads, on_slow, strict=True) if is_slow]
    for place, tier in enumerate(tiers):
        if left[place]:
            busy[place] += sum(load.share_of(tier) for load in cached) * float(left[place] / left.sum())
    seconds = {
        "layers": ask.flops_per_sample * ask.batch / nodes / server.flops_per_second,
        # The loads are parts of a second at the rate that is asked for; a step at that rate lasts batch / rate.
        "memory": max(busy) / BUSY * ask.batch / ask.samples_per_second,
    }
    miss_rate = 0.0
    slow = [table for table, is_slow in zip(ask.tables, on_slow, strict=True) if is_slow]
    if slow:
        fetch = _fetch(server, ask, slow, nodes, float(left.sum()))
        if fetch is None:
            return None
        seconds["slow tier"], miss_rate = fetch
    limited_by, step = max(seconds.items(), key=lambda one: one[1])
    rate = ask.batch / step
    hours = 1e9 / rate / 3600
    return Plan(
        nodes=nodes,
        places={table.name: names[place] for table, place in zip(ask.tables, places, strict=True)},
        cache_bytes=float(left.sum()),
        miss_rate=miss_rate,
        step_seconds=step,
        samples_per_second=rate,
        kwh=nodes * server.watts * hours * 3600 / JOULES_A_KWH,
        cost=nodes * server.price_per_hour * hours,
        limited_by=limited_by,
    )


def _fetch(
    server: Server, ask: Ask, slow: Sequence[TableDemand], nodes: int, cache_bytes: float
) -> tuple[float, float] | None:
    """Seconds that the rows of a step take to come from the slow tier, beside the step before, and the miss rate.

    None where a day of it would wear the tier out. A row that comes pushes another out, which was trained and is
    written back, so that as much is written as is read, block by block.
    """
    tier = next(tier for tier in server.tiers.values() if tier.reads_per_second is not None)
    hits = predict_hits(slow, ask.batch, cache_bytes * nodes)
    misses = np.minimum(hits.misses * ask.miss_factor, hits.requests)
    blocks = sum(
        miss * -(-table.row_bytes // tier.granule_bytes) / nodes for table, miss in zip(slow, misses, strict=True)
    )
    moved = blocks * tier.granule_bytes
    assert tier.reads_per_second is not None, "it is read by block"
    seconds = (
        tier.latency_seconds
        + max(
            2 * blocks / tier.reads_per_second, moved / tier.read_bytes_per_second + moved / tier.write_bytes_per_second
        )
        / BUSY
    )
    written_a_day = moved * ask.samples_per_second / ask.batch * SECONDS_A_DAY
    if tier.writes_per_day is not None and written_a_day > tier.writes_per_day * tier.capacity_bytes * USABLE:
        return None
    return float(seconds), float(misses.sum() / max(hits.requests.sum(), 1e-12))
