"""What each process of `benchmarks.towers` runs: one lookup and its gradient, counted, in every way to exchange."""

import json
from pathlib import Path

import torch

from shunter.extensions.distributed.links.processes import Report, join_group, run_member
from shunter.extensions.distributed.training.hosts import Hosts
from shunter.extensions.towers.dmt import split_evenly
from shunter.extensions.towers.sptt import TowerEmbeddings, TowerLayout
from tests.extensions.towers.flat_exchange import lookup_flat

BATCH, FIELDS, DIM, ROWS = 256, 24, 16, 1000
SHAPES = {"2 hosts of 2": 2, "4 hosts of 1": 1, "1 host of 4": 4}
WAYS = ("flat", "transform", "transform and towers")


def main(folder: Path, report: Report) -> None:
    """Count in every shape; each process writes down what it has sent."""
    join_group(folder)
    counted = {shape: {way: count(Hosts(size), way) for way in WAYS} for shape, size in SHAPES.items()}
    rank = torch.distributed.get_rank()
    (folder / f"traffic{rank}.json").write_text(json.dumps(counted))


def count(hosts: Hosts, way: str) -> dict[str, int]:
    """Bytes and messages by phase and link; a tower makes one vector of all fields of its host."""
    layout = TowerLayout.divide(split_evenly(range(FIELDS), hosts.count), hosts.processes_per_host, [ROWS] * FIELDS)
    tables = TowerEmbeddings(
        [ROWS] * FIELDS, DIM, learning_rate=0.1, device=torch.device("cpu"), hosts=hosts, layout=layout
    )
    tables.initialise(torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(hosts.rank)
    values = torch.randint(0, ROWS, (FIELDS * BATCH,), generator=generator).int()
    offsets = torch.arange(FIELDS * BATCH + 1).int()
    if way == "flat":
        vectors = lookup_flat(tables, values, offsets)
    elif way == "transform":
        vectors = tables(values, offsets)
    else:
        vectors = tables.to_samples(tables.to_towers(values, offsets).mean(1, keepdim=True), [1] * hosts.count)
    vectors.sum().backward()
    counted = {}
    for (phase, link), size in hosts.traffic.sent_bytes.items():
        counted[f"{phase}_{link}_bytes"] = size
        counted[f"{phase}_{link}_messages"] = hosts.traffic.messages[phase, link]
    return counted


if __name__ == "__main__":
    run_member(main)
