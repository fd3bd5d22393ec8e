"""Towers of fields (DMT, arXiv 2403.00877): what crosses hosts, what that would gain, what it costs in quality.

Three parts, of which each says what it is:

- counted: bytes and messages of each link, by real processes that exchange real embeddings over gloo on this machine;
- simulated: a step on a cluster, from those counts by formula and stated speeds of links. The paper says that the
  exchange of embeddings takes 27.5 % of a step; without it at all, a step would be 1.38 times as fast, so no simulation
  of communication alone may give more, nor the paper's 1.9, for which computing has to shrink as well;
- measured: validation AUC on generated clicks with interactions within groups of fields only, by how the fields are
  divided into towers: learned, by chance, or so that no two of a group are together.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from benchmarks import report
from benchmarks.towers.data import FIELDS_A_GROUP, GROUPS, write_grouped
from benchmarks.towers.member import BATCH, DIM, FIELDS, SHAPES, WAYS
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.extensions.distributed.links.processes import run_group
from shunter.extensions.towers.dmt import Towers
from shunter.extensions.towers.partitions import field_interactions
from shunter.extensions.towers.tower_partitioner import partition_fields
from shunter.models.registry import model_spec
from shunter.models.spec import ModelSpec

PROCESSES = 4
SEEDS = (0, 1, 2)
ROWS, QUICK_ROWS = 60_000, 6_000
MLPS: dict[str, Any] = {"embedding_dim": 8, "top_widths": (64, 32)}
RATES = Hyperparameters(dense_learning_rate=2e-3, embedding_learning_rate=0.05)
EXECUTION = Execution(threads=1, batch_size=1024)
KINDS: tuple[Literal["dlrm", "dcn"], ...] = ("dlrm", "dcn")
PARTITIONS = ("coherent", "diverse", "random", "adversarial")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is simulated; the bandwidths are those of a ZionEX pod (DHEN, arXiv 2203.11014), the rest is assumed.

    Attributes:
        hosts: Machines.
        per_host: Accelerators of each.
        intra_bytes_per_second: Bandwidth from an accelerator to those of its host.
        cross_bytes_per_second: Bandwidth from an accelerator to other hosts.
        message_seconds: Latency of a message over either link.
        exchanged_bytes: Bytes of the embeddings of the samples of an accelerator.
        exchange_share: Share of a step that the flat exchange takes, as the paper measured it.
    """

    hosts: int = 8
    per_host: int = 8
    intra_bytes_per_second: float = 600e9
    cross_bytes_per_second: float = 25e9
    message_seconds: float = 10e-6
    exchanged_bytes: float = 2048 * 64 * 128 * 4
    exchange_share: float = 0.275

    def flat_seconds(self) -> float:
        """One direction of the flat exchange; both links are busy at the same time."""
        all_of_them = self.hosts * self.per_host
        crossing = self.exchanged_bytes * (self.hosts - 1) / self.hosts
        within = self.exchanged_bytes * (self.per_host - 1) / all_of_them
        return max(
            crossing / self.cross_bytes_per_second + (all_of_them - self.per_host) * self.message_seconds,
            within / self.intra_bytes_per_second + (self.per_host - 1) * self.message_seconds,
        )

    def transform_seconds(self, compression: float = 1.0) -> float:
        """One direction of the transform; its two steps follow one another."""
        crossing = self.exchanged_bytes * (self.hosts - 1) / self.hosts / compression
        within = self.exchanged_bytes * (self.per_host - 1) / self.per_host
        return (
            within / self.intra_bytes_per_second
            + (self.per_host - 1) * self.message_seconds
            + crossing / self.cross_bytes_per_second
            + (self.hosts - 1) * self.message_seconds
        )

    def speedup(self, compression: float = 1.0) -> float:
        """Of a whole step, with nothing overlapped and computing as long as before."""
        left = self.transform_seconds(compression) / self.flat_seconds()
        return 1 / (1 - self.exchange_share + self.exchange_share * left)


def main() -> None:
    """Count, simulate, measure and publish."""
    quick = report.parse_arguments(__doc__).quick
    counted = count_traffic()
    simulated = simulate()
    seeds = SEEDS[:1] if quick else SEEDS
    measured = measure_quality(seeds, QUICK_ROWS if quick else ROWS)
    two = counted["2 hosts of 2"]
    headline = {
        "counted_cross_messages_flat": two["flat"]["forward_cross_messages"],
        "counted_cross_messages_transform": two["transform"]["forward_cross_messages"],
        "counted_cross_bytes_ratio": two["transform"]["forward_cross_bytes"] / two["flat"]["forward_cross_bytes"],
        "counted_cross_bytes_ratio_towers": two["transform and towers"]["forward_cross_bytes"]
        / two["flat"]["forward_cross_bytes"],
        "simulated_speedup_transform": round(Cluster().speedup(), 4),
        "simulated_speedup_towers_cr4": round(Cluster().speedup(4), 4),
        "simulated_speedup_bound": round(1 / (1 - Cluster().exchange_share), 4),
        **{
            f"auc_{kind}_{partition}": round(fmean(measured[f"{kind} {partition}"]["auc"]), 5)
            for kind, partition in product(KINDS, PARTITIONS)
        },
        "auc_flat": round(fmean(measured["flat"]["auc"]), 5),
        "groups_found": round(fmean(measured["groups found"]["adjusted_rand_index"]), 4),
    }
    details = {"counted": counted, "simulated": simulated, "measured": measured}
    report.publish("towers", headline, details, seeds=list(seeds), quick=quick)


def count_traffic() -> dict[str, dict[str, dict[str, int]]]:
    """What one process sends, the most of all processes; checked against the formulas."""
    with TemporaryDirectory() as name:
        run_group("benchmarks.towers.member", Path(name), PROCESSES, threads=1, on_report=lambda *_: None)
        members = [json.loads((Path(name) / f"traffic{rank}.json").read_text()) for rank in range(PROCESSES)]
    counted = {
        shape: {
            way: {key: max(one[shape][way][key] for one in members) for key in members[0][shape][way]} for way in WAYS
        }
        for shape in SHAPES
    }
    exchanged = BATCH * FIELDS * DIM * 4
    for shape, per_host in SHAPES.items():
        hosts = PROCESSES // per_host
        for way, messages, compression in zip(
            WAYS, (PROCESSES - per_host, hosts - 1, hosts - 1), (1, 1, FIELDS // hosts), strict=True
        ):
            found = counted[shape][way]
            expected = exchanged * (hosts - 1) // hosts // compression
            assert found.get("forward_cross_bytes", 0) == found.get("backward_cross_bytes", 0) == expected
            assert found.get("forward_cross_messages", 0) == messages
    report.table(
        f"Counted in {PROCESSES} processes, {BATCH} samples of {FIELDS} fields each: sent by one, forward",
        ("hosts, exchange", "bytes across hosts", "messages", "bytes within", "messages"),
        [
            (
                f"{shape}, {way}",
                *(
                    f"{counted[shape][way].get(f'forward_{link}_{what}', 0):,}"
                    for link, what in product(("cross", "intra"), ("bytes", "messages"))
                ),
            )
            for shape, way in product(SHAPES, WAYS)
        ],
    )
    return counted


def simulate() -> list[dict[str, float]]:
    """Speed-up of a step by the transform, with and without compression, on clusters of several shapes."""
    found = []
    for hosts, per_host, cross in product((2, 8, 64), (8,), (25e9, 50e9)):
        cluster = Cluster(hosts=hosts, per_host=per_host, cross_bytes_per_second=cross)
        found.append(
            {
                "hosts": hosts,
                "per_host": per_host,
                "cross_bytes_per_second": cross,
                **{f"speedup_cr{ratio}": cluster.speedup(ratio) for ratio in (1, 2, 4, 16)},
            }
        )
    report.table(
        "Simulated: speed-up of a step in which the flat exchange takes 27.5 % (no more than 1.38 can come of it)",
        ("hosts of 8, GB/s across", "transform", "CR 2", "CR 4", "CR 16"),
        [
            (
                f"{one['hosts']}, {one['cross_bytes_per_second'] / 1e9:.0f}",
                *(f"{one[f'speedup_cr{ratio}']:.3f}" for ratio in (1, 2, 4, 16)),
            )
            for one in found
        ],
    )
    return found


def measure_quality(seeds: tuple[int, ...], rows: int) -> dict[str, dict[str, list[float]]]:
    """AUC and NE on the validation part, by kind of tower and partition, a list over the seeds."""
    from sklearn.metrics import adjusted_rand_score

    measured: dict[str, dict[str, list[float]]] = {"groups found": {"adjusted_rand_index": []}}
    for seed in seeds:
        with TemporaryDirectory() as name:
            dataset, groups = write_grouped(Path(name) / "data", rows, seed)
            partitions = partitions_of(dataset, groups, seed)
            index = adjusted_rand_score(_labels(groups), _labels(partitions["coherent"]))
            measured["groups found"]["adjusted_rand_index"].append(float(index))
            for run, spec in _specs(dataset, partitions):
                result = train(
                    TrainingJob(dataset, spec, RATES, EXECUTION, Schedule(max_epochs=6, patience=1, seed=seed))
                ).validation
                kept = measured.setdefault(run, {"auc": [], "ne": []})
                kept["auc"].append(float(result.auc))
                kept["ne"].append(float(result.ne))
                print(f"seed {seed}, {run}: AUC {result.auc:.4f}, NE {result.ne:.4f}", flush=True)
    report.table(
        f"Measured: {rows:,} generated rows, {GROUPS} towers of {FIELDS_A_GROUP} fields, {len(seeds)} seeds",
        ("towers", "AUC", "NE"),
        [(run, f"{fmean(one['auc']):.4f}", f"{fmean(one['ne']):.4f}") for run, one in measured.items() if "auc" in one],
    )
    return measured


def partitions_of(dataset: Dataset, groups: Towers, seed: int) -> dict[str, Towers]:
    """The ways to divide the fields; `adversarial` puts each field of a group into another tower."""
    found = field_interactions(dataset, EXECUTION, seed=seed)
    drawn = np.random.default_rng(seed + 100).permutation(GROUPS * FIELDS_A_GROUP).reshape(GROUPS, -1)
    return {
        "coherent": partition_fields(found, GROUPS, strategy="coherent", seed=seed).towers,
        "diverse": partition_fields(found, GROUPS, strategy="diverse", seed=seed).towers,
        "random": tuple(tuple(tower) for tower in drawn.tolist()),
        "adversarial": tuple(
            tuple(groups[(tower + place) % GROUPS][place] for place in range(FIELDS_A_GROUP)) for tower in range(GROUPS)
        ),
    }


def _specs(dataset: Dataset, partitions: dict[str, Towers]) -> Iterator[tuple[str, ModelSpec]]:
    names = [field.name for field in dataset.features.categorical]
    yield "flat", model_spec(**MLPS)
    for kind, (partition, towers) in product(KINDS, partitions.items()):
        fields = tuple(tuple(names[position] for position in tower) for tower in towers)
        yield (
            f"{kind} {partition}",
            model_spec(family="dmt", tower_fields=fields, tower_kind=kind, tower_vectors=1, **MLPS),
        )


def _labels(towers: Towers) -> list[int]:
    tower_of = {field: number for number, tower in enumerate(towers) for field in tower}
    return [tower_of[field] for field in sorted(tower_of)]
