"""Training with the embedding tables in a file: what the cache finds, and what fetching ahead hides of the rest.

The same steps of a Criteo-shaped DLRM, in turn: all tables in memory; in a file, where each batch's rows are fetched
when it is their turn; in a file, where they are fetched in the background while former batches are trained. All three
end with bitwise the same weights, which is checked. The file fits into this machine's memory, so its pages are found
there: a fetch costs the book-keeping and the copy, not a disk. A slower tier is therefore simulated beside it, whose
rows take a set time each.
"""

import hashlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from benchmarks.report import parse_arguments, publish, table
from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch, make_batch
from shunter.engine.loop.step import admitted_batches, applied, build_dense_optimizer, prefetch, train_step
from shunter.extensions.tiers.slots import Admission
from shunter.extensions.tiers.tiered import TieredEmbeddings
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

SEED = 0
TABLES = 26
SPEC = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))
RATES = Hyperparameters()
CACHE_SHARES = (0.05, 0.2)
SAMPLES = 2_048
SIMULATED_ROWS_PER_SECOND = 500_000
WARMUP_STEPS = 10

COUNTED = ("lookups", "hits", "misses", "written_back", "transfer_seconds")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to train: None for tables in memory, and for a file that is as fast as it is; levels of the rows."""

    cache_rows: int | None = None
    row_levels: np.ndarray | None = field(default=None, compare=False)
    ahead: bool = False
    rows_per_second: float | None = None


def draw_batches(features: Features, count: int, samples: int) -> list[Batch]:
    """Batches whose ids follow a power law, rank r with probability ~ 1 / (r + 10): many rows come once or twice."""
    random = np.random.default_rng(SEED)
    batches = []
    for _ in range(count):
        uniform = random.random((samples, len(features.categorical)))
        rows = np.array([field.rows for field in features.categorical])
        ids = (10 * ((rows / 10 + 1) ** uniform - 1)).astype(np.int32)
        dense = random.random((samples, len(features.dense)), dtype=np.float32)
        labels = (random.random(samples) < 0.25).astype(np.float32)
        batches.append(
            make_batch(features, dense=dense, categorical=np.minimum(ids, rows - 1).astype(np.int32), labels=labels)
        )
    return batches


def train(features: Features, batches: list[Batch], variant: Variant) -> tuple[dict[str, Any], Model]:
    """Train on the batches once; figures of the steps after the warm-up."""
    execution = Execution(threads=1, batch_size=SAMPLES)
    rows, window = variant.cache_rows, execution.window_batches
    cache = None if rows is None else EmbeddingCache(rows=rows, window_batches=window, row_levels=variant.row_levels)
    with applied(execution) as device:
        model = build_model(SPEC, features, seed=SEED, device=device, cache=cache).train()
        if variant.rows_per_second is not None:
            _slow_down(model.embeddings, variant.rows_per_second)
        optimizer = build_dense_optimizer(model, RATES)
        source = iter(batches)
        with prefetch(admitted_batches(source, model) if variant.ahead else source, execution) as ready:
            steps = iter(ready) if variant.ahead else admitted_batches(ready, model)
            for batch in islice(steps, WARMUP_STEPS):
                train_step(model, optimizer, batch, "fp32")
            waited, counted = ready.wait_seconds, _counts(model)
            seconds = list(_step_seconds(steps, model, optimizer))
        figures: dict[str, Any] = {name: value - counted[name] for name, value in _counts(model).items()}
        figures |= {"step_seconds": statistics.median(seconds), "train_seconds": sum(seconds)}
        figures["wait_seconds"] = ready.wait_seconds - waited
        figures["wait_step_seconds"] = figures["wait_seconds"] / len(seconds)
        if figures.get("lookups"):  # of batches admitted, which may be some more than were trained
            batch_count = figures["lookups"] / (SAMPLES * len(features.categorical))
            figures["misses_step"] = figures["misses"] / batch_count
            figures["transfer_step_seconds"] = figures["transfer_seconds"] / batch_count
            figures["hit_rate"] = figures["hits"] / (figures["hits"] + figures["misses"])
    return figures, model


def _slow_down(tables: EmbeddingTables, rows_per_second: float) -> None:
    """Simulate a tier that delivers so many rows a second."""
    assert isinstance(tables, TieredEmbeddings)
    tiers = tables._tiers
    move = tiers._move

    def move_slowly(admission: Admission) -> None:
        started = time.perf_counter()
        move(admission)
        time.sleep(max(len(admission.arriving) / rows_per_second - (time.perf_counter() - started), 0))

    tiers._move = move_slowly


def _step_seconds(steps: Iterator[Batch], model: Model, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    """Train on all batches, and yield the seconds of each step with the loading of its batch."""
    started = time.perf_counter()
    for batch in steps:
        train_step(model, optimizer, batch, "fp32")
        yield time.perf_counter() - started
        started = time.perf_counter()


def _counts(model: Model) -> dict[str, float]:
    counts = model.embeddings.cache_counts
    return {} if counts is None else {name: getattr(counts, name) for name in COUNTED}


def compare(features: Features, batches: list[Batch], variants: dict[str, Variant], rounds: int) -> dict[str, Any]:
    """Train in each variant in turn, round after round; medians over the rounds."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            figures, model = train(features, batches, variant)
            figures["weights"] = _fingerprint(model)
            results[name].append(figures)
    assert len({figures["weights"] for found in results.values() for figures in found}) == 1, "the weights differ"
    return {name: _median(found) for name, found in results.items()}


def _fingerprint(model: Model) -> str:
    """Hash of all weights and of the optimiser's state, bit by bit."""
    digest = hashlib.sha256()
    for tensor in (*model.state_dict().values(), model.embeddings.adagrad_sum):
        digest.update(tensor.numpy().data)
    return digest.hexdigest()


def _median(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, str) else statistics.median(figures[name] for figures in found)
        for name, value in found[0].items()
    }


def main() -> None:
    """Measure and publish."""
    quick = parse_arguments(__doc__).quick
    table_rows, steps, rounds = (200_000, 30, 1) if quick else (400_000, 50, 3)
    features = Features(
        dense=tuple(f"dense{i}" for i in range(13)),
        categorical=tuple(CategoricalFeature(name=f"field{i}", rows=table_rows) for i in range(TABLES)),
    )
    batches = draw_batches(features, steps, samples=SAMPLES)
    total_rows = TABLES * table_rows
    variants = {"in memory": Variant()}
    for share in CACHE_SHARES:
        for way, ahead in (("in turn", False), ("ahead", True)):
            variants[f"cache {share:.0%}, {way}"] = Variant(cache_rows=int(share * total_rows), ahead=ahead)
    cached = variants[f"cache {CACHE_SHARES[-1]:.0%}, ahead"]
    slow = replace(cached, rows_per_second=SIMULATED_ROWS_PER_SECOND)
    variants |= {"simulated tier, in turn": replace(slow, ahead=False), "simulated tier, ahead": slow}
    found = compare(features, batches, variants, rounds)
    table(
        f"{total_rows:,} rows of {SPEC.embedding_dim}, batches of {SAMPLES:,}, one thread; per step, times in ms",
        ("tables", "step", "waited", "moving", "misses", "hits"),
        [_row(name, figures) for name, figures in found.items()],
    )
    in_memory, ahead = found["in memory"], found[f"cache {CACHE_SHARES[-1]:.0%}, ahead"]
    headline = {
        "bitwise_equal": True,  # asserted in `compare`, of each run
        "hit_rate": ahead["hit_rate"],
        "step_ratio_to_memory": ahead["step_seconds"] / in_memory["step_seconds"],
        "stall_share": ahead["wait_seconds"] / ahead["train_seconds"],
        "saving": _saving(found, f"cache {CACHE_SHARES[-1]:.0%}"),
        "saving_simulated_tier": _saving(found, "simulated tier"),
    }
    details = {"table_rows": total_rows, "steps": steps, "rounds": rounds, "variants": found}
    details["simulated_rows_per_second"] = SIMULATED_ROWS_PER_SECOND
    publish("lookahead", headline, details, seeds=[SEED], quick=quick)


def _saving(found: dict[str, Any], name: str) -> float:
    return 1 - found[f"{name}, ahead"]["step_seconds"] / found[f"{name}, in turn"]["step_seconds"]


def _row(name: str, figures: dict[str, Any]) -> list[str]:
    parts = [figures.get(f"{part}_seconds") for part in ("step", "wait_step", "transfer_step")]
    return [
        name,
        *("" if seconds is None else f"{seconds * 1e3:.1f}" for seconds in parts),
        f"{figures['misses_step']:,.0f}" if "misses_step" in figures else "",
        f"{figures['hit_rate']:.1%}" if "hit_rate" in figures else "",
    ]


if __name__ == "__main__":
    main()
