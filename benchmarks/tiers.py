"""Embedding tables on tiers: training beside memory, misses beside their prediction, policies, a rival, and nodes.

Training: the steps of a Criteo-shaped DLRM in turn with all tables in memory and with a cache of 5 and 20 % of the rows
in front of a file, ids by Zipf's law with the exponent 1.05; all end with the same bits, which is checked. The file's
pages are in this machine's memory, so a fetch costs book-keeping and a copy, not a disk. The same in two processes,
by whole trainings of an epoch in turn: tables divided by row in memory, and in files with 20 % of the rows in memory.

Misses: what `shunter plan memory` predicts from the statistics of the data, beside the cache of a training that goes
through its samples in random order, for several sizes on ml-100k; and with a fifth of the rows on other logs, beside
caches that would let the least recently or the least often used row go. Policies: what `shunter serve --memory` finds
without the file, with a tenth of the tables in memory. Rival: 26 rows out of a file by the reader of served tables,
past the page cache and through it, and out of SQLite, the key-value store of the standard library. Nodes, and the
energy of serving by hosts with drives beside hosts with memory alone (for tables of 0.4, 1 and 3 TB, 50 and 100 lookups
a sample): simulated.

With `--untimed` the timed parts stay as they were published, with their date.
"""

import argparse
import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.cache_replay import POLICIES as POLICIES_REPLAYED
from benchmarks.cache_replay import SAMPLES as REPLAYED
from benchmarks.cache_replay import Replayed, logs, replay
from benchmarks.checkpoints import job_of, zipf_log
from benchmarks.lookahead import RATES, SAMPLES, SPEC, TABLES, Variant, compare
from benchmarks.report import parse_arguments, publish, result_path, table
from shunter.engine.data.batch import Batch, make_batch
from shunter.extensions.distributed.executors.process_group import ProcessGroup, local_machine
from shunter.extensions.distributed.planning.calibration import typical_step_seconds
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.extensions.distributed.training import Sharding
from shunter.extensions.tiers.memory.compare import compare_servers
from shunter.extensions.tiers.memory.demand import TableDemand, segments_of
from shunter.extensions.tiers.memory.nodes import TrainingDemand
from shunter.extensions.tiers.memory.power import BASE as SERVING_BASE
from shunter.extensions.tiers.memory.power import saving, serving_fleets
from shunter.extensions.tiers.memory.servers import BASE, read_servers
from shunter.extensions.tiers.row_use import use_levels
from shunter.extensions.tiers.slots import BYTES_A_ROW, BYTES_A_SLOT
from shunter.extensions.tiers.stored import row_file
from shunter.extensions.tiers.stored.memory_division import divide
from shunter.extensions.tiers.stored.row_file import RowFile
from shunter.extensions.tiers.stored.tables import StoredEmbeddings
from shunter.hardware.types import Placement
from shunter.ingestion.request import ingest_request
from shunter.models.spec import CategoricalFeature, Features
from shunter.requests import TrainRequest

SEED = 0
EXPONENT = 1.05
SHARES = (0.05, 0.2)
CACHE_SHARES = (0.3, 0.5, 0.7)
POLICIES: dict[str, dict[str, Any]] = {
    "lru": {"pinned_share": 0.0, "policy": "lru"},
    "lfu": {"pinned_share": 0.0, "policy": "lfu"},
    "pinned": {"pinned_share": 1.0},
    "pinned and lru": {},
}
MODEL_BYTES = 11e12
SERVED, SERVED_SAMPLES = ((4e11, 50.0), (1e12, 50.0), (1e12, 100.0), (3e12, 100.0)), 2e7
DIVIDED_PROCESSES, DIVIDED_SAMPLES = 2, 1_024
DIVIDED_SIZES = {False: (120_000, 50_000, 2), True: (20_000, 5_000, 1)}  # samples, ids of a field, turns
TIMED = ("bitwise_equal", "processes_", "slowdown_", "bytes_per_step_ratio", "row_file_", "sqlite_")


def zipf_ids(random: np.random.Generator, rows: int, count: int) -> np.ndarray:
    """Ids that are ranks by Zipf's law, from 0."""
    total = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -EXPONENT)
    return np.searchsorted(total, random.random(count) * total[-1]).astype(np.int32)


def draw(features: Features, count: int) -> list[Batch]:
    """Batches of a training."""
    random = np.random.default_rng(SEED)
    batches: list[Batch] = []
    for _ in range(count):
        ids = np.stack([zipf_ids(random, field.rows, SAMPLES) for field in features.categorical], axis=1)
        dense = random.random((SAMPLES, len(features.dense)), dtype=np.float32)
        labels = (random.random(SAMPLES) < 0.25).astype(np.float32)
        batches.append(make_batch(features, dense=dense, categorical=ids, labels=labels))
    return batches


def train_beside_memory(rows: int, steps: int, rounds: int) -> dict[str, Any]:
    """Steps with all tables in memory and in a file."""
    categorical = tuple(CategoricalFeature(name=f"field{i}", rows=rows) for i in range(TABLES))
    features = Features(dense=tuple(f"dense{i}" for i in range(13)), categorical=categorical)
    variants = {"in memory": Variant()}
    uses = np.arange(1, rows + 1, dtype=np.float64) ** -EXPONENT
    levels = np.tile(use_levels(uses / uses.sum()), TABLES)
    variants |= {
        f"cache {share:.0%}": Variant(cache_rows=int(share * TABLES * rows), ahead=True, row_levels=levels)
        for share in SHARES
    }
    return compare(features, draw(features, steps), variants, rounds)


def train_divided(folder: Path, samples: int, ids: int, turns: int) -> dict[str, Any]:
    """Trainings of two processes; seconds of a step of each turn, and what moved.

    Raises:
        AssertionError: They do not end with the same bits.
    """
    job = job_of(zipf_log(folder, samples, ids), DIVIDED_SAMPLES, epochs=1)
    features = job.dataset.features
    rows, row_bytes = sum(features.table_rows), 4 * (job.spec.embedding_dim + 1)
    memory = rows * BYTES_A_ROW + int(SHARES[-1] * rows) * (row_bytes + BYTES_A_SLOT)
    placement = Placement(
        accelerator="cpu", threads=2, precision="fp32", batch_size=DIVIDED_SAMPLES, processes=DIVIDED_PROCESSES
    )
    by_row = tuple(Choice("row_wise") for _ in features.table_rows)
    group = ProcessGroup(placement, Sharding(machine=local_machine("cpu", DIVIDED_PROCESSES), given=by_row))
    in_files = replace(job, execution=replace(job.execution, embedding_memory_bytes=memory))
    found: dict[str, Any] = {"in memory": [], "in files": []}
    weights: dict[str, Tensor] | None = None
    for _ in range(turns):
        for name, one in (("in memory", job), ("in files", in_files)):
            result = group.run(one)
            seconds = typical_step_seconds(result.history)
            assert seconds is not None, "it has trained for a whole epoch"
            found[name].append(seconds)
            ended = {key: value.clone() for key, value in result.model.state_dict().items()}
            weights = ended if weights is None else weights
            assert all(torch.equal(value, weights[key]) for key, value in ended.items()), "other bits"
            if result.tiers is not None:
                found["moved"] = {**asdict(result.tiers), "miss_rate": result.tiers.miss_rate}
    return found


def miss_rates(folder: Path, *, quick: bool) -> tuple[list[dict[str, float]], dict[str, Replayed]]:
    """Predicted and measured misses of a cache of several sizes on ml-100k, and of all policies on other logs."""
    dataset, _ = ingest_request(TrainRequest(data="ml-100k"))
    sizes = {share: replay(dataset, 256, share, ("pinned",)) for share in CACHE_SHARES}
    found = [
        {"cache_share": share, "predicted": one.predicted, "measured": one.measured} for share, one in sizes.items()
    ]
    names = [name for name in REPLAYED if name == "zipf" or not quick]
    return found, {name: replay(log, REPLAYED[name]) for name, log in logs(folder, names)}


def policies(folder: Path, rows: int, requests: int) -> dict[str, dict[str, float]]:
    """Rows that need not be read, by policy, on ids as training knew them and on ids that have moved."""
    dim, sizes = 16, [rows] * TABLES
    path = folder / "tables"
    path.write_bytes(np.zeros((rows * TABLES, dim), np.float32).tobytes())
    found: dict[str, dict[str, float]] = {}
    for name, options in POLICIES.items():
        found[name] = {}
        for trace, moved in (("as trained", 0), ("moved", rows // 2)):
            random = np.random.default_rng(SEED)
            divided = divide(rows * TABLES * dim * 4 // 10, sizes, dim, TABLES, **options)
            with path.open("rb") as file:
                stored = RowFile(file.fileno(), 0, rows * TABLES, dim, divided.buffer_bytes)
            tables = StoredEmbeddings(sizes, dim, range(TABLES), stored, divided).eval()
            offsets = torch.arange(20 * TABLES + 1, dtype=torch.int32)
            before = tables.counts
            for place in range(requests):
                if place == requests // 2:
                    before = tables.counts
                ids = (zipf_ids(random, rows, 20 * TABLES) + moved) % rows
                tables(torch.from_numpy(ids.astype(np.int32)), offsets)
            now = tables.counts
            read, all_rows = (
                now.read - before.read,
                sum(getattr(now, part) - getattr(before, part) for part in ("pinned", "cached", "read")),
            )
            found[name][trace] = 1 - read / all_rows
            tables.close()
    return found


def readers(folder: Path, rows: int, times: int) -> dict[str, float]:
    """Median microseconds to fetch 26 rows of 16 numbers, drawn evenly."""
    dim = 16
    numbers = np.random.default_rng(SEED).random((rows, dim), np.float32)
    path = folder / "rows"
    path.write_bytes(numbers.tobytes())
    base = sqlite3.connect(folder / "rows.db")
    base.execute("create table rows (id integer primary key, value blob)")
    base.executemany("insert into rows values (?, ?)", ((place, one.tobytes()) for place, one in enumerate(numbers)))
    base.commit()

    def from_sqlite(asked: np.ndarray) -> np.ndarray:
        marks = ",".join("?" * len(asked))
        found = base.execute(f"select value from rows where id in ({marks}) order by id", asked.tolist())
        return np.stack([np.frombuffer(value, np.float32) for (value,) in found])

    def opened() -> RowFile:
        with path.open("rb") as file:
            return RowFile(file.fileno(), 0, rows, dim, 8 * 3 * 4096)

    direct = opened()
    kept, row_file._reopened = row_file._reopened, lambda descriptor: (os.dup(descriptor), False)
    try:
        buffered = opened()
    finally:
        row_file._reopened = kept
    contestants: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        f"row file, {'past the page cache' if direct.is_direct else 'direct reads not possible'}": direct.read,
        "row file, through the page cache": buffered.read,
        "SQLite, through the page cache": from_sqlite,
    }
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    random = np.random.default_rng(SEED)
    for _ in range(times):
        asked = np.sort(random.choice(rows, TABLES, replace=False))
        for name, read in contestants.items():
            begin = time.perf_counter()
            found = read(asked)
            taken[name].append(time.perf_counter() - begin)
            assert np.array_equal(found, numbers[asked])
    base.close()
    return {name: 1e6 * statistics.median(seconds) for name, seconds in taken.items()}


def simulated_nodes() -> list[dict[str, Any]]:
    """Nodes of each server for a model of 11 TB, by the rate that is asked for."""
    ranks = np.unique(np.geomspace(1, 10**6, 64).astype(int))
    total = np.cumsum(np.arange(1, 10**6 + 1, dtype=np.float64) ** -EXPONENT)
    curve = [(rank / 10**6, float(total[rank - 1] / total[-1])) for rank in ranks]
    random = np.random.default_rng(SEED)
    sizes = random.lognormal(0, 1.5, 100)
    rows = sizes / sizes.sum() * MODEL_BYTES / (129 * 4)
    tables = tuple(
        TableDemand(f"t{place}", one, 128, float(random.integers(1, 20)), segments_of(curve, one))
        for place, one in enumerate(rows.tolist())
    )
    found: list[dict[str, Any]] = []
    for rate in (10_000.0, 100_000.0, 1_000_000.0):
        compared = compare_servers(read_servers(), TrainingDemand(tables, 1e8, 65_536, rate))
        by_misses = [vars(one) for one in compared.around if one.samples_per_second == rate]
        found.append({"samples_per_second": rate, **compared.to_dict()["servers"], "by_misses": by_misses})
        for plan in (one for one in found[-1].values() if isinstance(one, dict)):
            plan.pop("places", None)
    return found


def simulated_serving() -> dict[str, dict[str, float]]:
    """Energy that hosts with drives save, by what is served at 20 million samples a second and how often it misses."""
    ranks = np.unique(np.geomspace(1, 10**6, 64).astype(int))
    total = np.cumsum(np.arange(1, 10**6 + 1, dtype=np.float64) ** -EXPONENT)
    curve = [(rank / 10**6, float(total[rank - 1] / total[-1])) for rank in ranks]
    sizes = np.random.default_rng(SEED).lognormal(0, 1.5, 50)
    found: dict[str, dict[str, float]] = {}
    for table_bytes, lookups in SERVED:
        rows = sizes / sizes.sum() * table_bytes / (64 * 4)
        tables = [TableDemand("t", one, 64, lookups / 50, segments_of(curve, one)) for one in rows.tolist()]
        for factor in (1.0, 2.0):
            fleets = serving_fleets(tables, SERVED_SAMPLES, miss_factor=factor)
            name = f"{table_bytes:.0e} bytes, {lookups:g} lookups, {factor:g} times the misses"
            found[name] = {host: saving(fleets, host) for host in fleets if host != SERVING_BASE}
    return found


def main() -> None:
    """Measure and publish."""
    asked = parse_arguments(__doc__, _options)
    quick = asked.quick
    trained = {} if asked.untimed else train_beside_memory(*((50_000, 30, 1) if quick else (200_000, 40, 3)))
    with tempfile.TemporaryDirectory(prefix="shunter-tiers-") as temporary:
        misses, replayed = miss_rates(Path(temporary), quick=quick)
        found = policies(Path(temporary), 10_000, 100 if quick else 300)
        microseconds = {} if asked.untimed else readers(Path(temporary), 100_000, 50 if quick else 400)
        divided = {} if asked.untimed else train_divided(Path(temporary), *DIVIDED_SIZES[quick])
    nodes, served = simulated_nodes(), simulated_serving()
    _print(trained, misses, found, microseconds)
    shown = [[name, *(f"{fmean(one):.1%}" for one in log.misses.values())] for name, log in replayed.items()]
    table("misses of a cache of a fifth of the rows, by what goes", ("log", *POLICIES_REPLAYED), shown)
    if divided:
        times = [(name, f"{1e3 * min(divided[name]):.1f}") for name in ("in memory", "in files")]
        table("two processes, tables divided by row", ("tables", "step, ms"), times)
    kept, details = ({}, {}) if trained else _kept_timings()
    best = {(rate, factor): ratio for rate, factor, ratio in map(_fewest, _by_misses(nodes))}
    headline: dict[str, float | bool] = {
        **(_timed(trained, microseconds) | _divided(divided) if trained else kept),
        "hit_rate_error": max(
            *(abs(one["predicted"] - one["measured"]) for one in misses), *(log.error for log in replayed.values())
        ),
        **{
            f"training_misses_{name}_{policy}": fmean(rates)
            for name, log in replayed.items()
            for policy, rates in log.misses.items()
        },
        "nodes_ratio_simulated": best[10_000.0, 1.0],
        **{
            f"nodes_ratio_simulated_{exponent}{words}": best[float(exponent), factor]
            for exponent in ("1e4", "1e5", "1e6")
            for factor, words in ((0.5, "_half_the_misses"), (1.0, ""), (2.0, "_twice_the_misses"))
            if (exponent, factor) != ("1e4", 1.0)
        },
        **{f"served_{name.replace(' ', '_')}": one["as trained"] for name, one in found.items()},
        **{f"served_{name.replace(' ', '_')}_moved": one["moved"] for name, one in found.items()},
    }
    for host in next(iter(served.values())):
        savings = [one[host] for one in served.values()]
        headline |= {
            f"energy_saving_simulated_{host}": max(savings),
            f"energy_saving_simulated_{host}_least": min(savings),
        }
    details = {"training": trained, "divided": divided, "readers": microseconds} | details
    details |= {"replayed": {name: asdict(log) for name, log in replayed.items()}}
    details |= {"misses": misses, "policies": found, "nodes": nodes, "serving": served}
    details |= {"rates": vars(RATES), "embedding_dim": SPEC.embedding_dim, "samples": SAMPLES}
    publish("tiers", headline, details, seeds=[SEED], quick=quick)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--untimed", action="store_true", help="only what other work on the machine does not change")


def _kept_timings() -> tuple[dict[str, Any], dict[str, Any]]:
    """Headline and details of the timed parts as they are published, with when they were taken."""
    path = result_path("tiers")
    if not path.exists():
        return {}, {}
    former = json.loads(path.read_text())
    figures = {name: value for name, value in former["headline"].items() if name.startswith(TIMED)}
    details = {name: former["details"].get(name, {}) for name in ("training", "divided", "readers")}
    return figures, {**details, "timed_at": former["details"].get("timed_at", former["date"])}


def _timed(trained: dict[str, Any], microseconds: dict[str, float]) -> dict[str, float | bool]:
    cached = trained[f"cache {SHARES[-1]:.0%}"]
    steps = {share: trained[f"cache {share:.0%}"]["step_seconds"] for share in SHARES}
    return {
        "bitwise_equal": True,  # asserted in `compare`, of each run
        **{
            f"slowdown_cache_{100 * share:.0f}": one / trained["in memory"]["step_seconds"]
            for share, one in steps.items()
        },
        "bytes_per_step_ratio": (cached["misses"] + cached["written_back"]) / cached["lookups"],
        "row_file_microseconds": microseconds["row file, through the page cache"],
        "sqlite_microseconds": microseconds["SQLite, through the page cache"],
    }


def _divided(divided: dict[str, Any]) -> dict[str, float | bool]:
    return {
        "processes_bitwise_equal": True,  # asserted in `train_divided`, of each run
        "slowdown_processes_cache_20": min(divided["in files"]) / min(divided["in memory"]),
    }


def _by_misses(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for of_rate in nodes for one in of_rate["by_misses"]]


def _fewest(one: dict[str, Any]) -> tuple[float, float, float]:
    """Rate, misses over those predicted, and nodes of the base over those of the server that needs fewest."""
    fewest = min(nodes for nodes in one["nodes"].values() if nodes is not None)
    return one["samples_per_second"], one["miss_factor"], one["nodes"][BASE] / fewest


def _print(
    trained: dict[str, Any],
    misses: list[dict[str, float]],
    found: dict[str, dict[str, float]],
    microseconds: dict[str, float],
) -> None:
    if trained:
        times = {name: (one["step_seconds"], one.get("hit_rate", 1)) for name, one in trained.items()}
        rows = [[name, f"{1e3 * seconds:.1f}", f"{hits:.1%}"] for name, (seconds, hits) in times.items()]
        table("training, times in ms", ("tables", "step", "hits"), rows)
        table("26 rows", ("from", "microseconds"), [[name, f"{one:.0f}"] for name, one in microseconds.items()])
    table(
        "misses of the cache of a training on ml-100k",
        ("share of rows", "predicted", "measured"),
        [[f"{one[name]:.1%}" for name in ("cache_share", "predicted", "measured")] for one in misses],
    )
    table(
        "served rows that are in memory, a tenth of the tables",
        ("policy", "as trained", "moved"),
        [[name, *(f"{share:.1%}" for share in one.values())] for name, one in found.items()],
    )


if __name__ == "__main__":
    main()
