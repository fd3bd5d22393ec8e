"""Zeros of activations and gradients: which multiplications count, and what keeping them packed spares.

A DLRM of Criteo's shape (layers 512-256-64 and 512-256) learns a planted log for some steps with the product's
defaults; its last steps are counted by `shunter.extensions.stalls.useful_share`, as `shunter profile --data` does.
Shares are measured; the speed-up of the backward pass is simulated by `shunter.extensions.stalls.useful_share`,
of the linear layers on 16 lanes. Bytes are counted of all that autograd keeps of a step of 2,048 samples, weights left
out, as it is and packed; the time of both steps, and of one without dead units, processor time on one thread, stands
beside.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import report
from benchmarks.efficiency.part import Part
from benchmarks.efficiency.parts.rewriting import alternating
from benchmarks.optimizers import ingest_planted
from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.loss import mean_losses
from shunter.engine.loop.step import build_dense_optimizer, train_step
from shunter.extensions.rewriting.lean_steps import Compaction, PackedActivations
from shunter.extensions.stalls.useful_share import SKIPPINGS, useful_share
from shunter.models.registry import Model, build_model, model_spec

ROWS, QUICK_ROWS = 400_000, 20_000
BATCH, QUICK_BATCH = 2_048, 512
STEPS, QUICK_STEPS = 150, 20
SPEC = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))


def measure(*, quick: bool) -> Part:
    """Shares, simulated speed-ups, bytes."""
    torch.set_num_threads(1)
    rows, batch, steps = (QUICK_ROWS, QUICK_BATCH, QUICK_STEPS) if quick else (ROWS, BATCH, STEPS)
    with tempfile.TemporaryDirectory() as folder:
        dataset = ingest_planted(rows, Path(folder))
        useful = useful_share(dataset, SPEC, Execution(batch_size=batch), steps=steps)
        assert useful is not None, "it has linear layers"
        packing = packed(dataset, batch, steps)
    headline = {
        "useful_backward_share": useful.backward,
        **{f"simulated_backward_speedup_{kind}": useful.speedup(kind) for kind in list(SKIPPINGS)[1:-1]},
        "simulated_backward_speedup": useful.speedup("both"),
        "mask_memory_ratio": packing["whole_bytes"] / packing["kept_bytes"],
        "mask_step_time_ratio": packing["packed_seconds"] / packing["seconds"],
        "compaction_step_time_ratio": packing["compacted_seconds"] / packing["seconds"],
    }
    report.table(
        "Multiplications that count", ("layer", "forward", "backward", "dead"), [row[:4] for row in useful.rows()]
    )
    return Part(headline, {"useful": useful.model_dump(), "packing": packing, "rows": rows, "batch_size": batch})


def packed(dataset: Dataset, batch_size: int, steps: int) -> dict[str, Any]:
    """Bytes and processor time of steps as they are, packed, and without dead units, after some training."""
    model = build_model(SPEC, dataset.features, seed=0).train()
    optimizer = build_dense_optimizer(model, Hyperparameters())
    loader = BatchLoader(dataset, "train", batch_size, shuffle=True)
    batches = [batch for batch, _ in zip(loader.batches(), range(steps), strict=False)]
    for batch in batches:
        train_step(model, optimizer, batch, "fp32")
    batch = batches[0]
    kept = {is_counting: _kept_bytes(model, batch, is_counting=is_counting) for is_counting in (True, False)}

    def step(*, packs: bool = False, compacts: bool = False) -> Callable[[], object]:
        def work() -> None:
            model.around_step = PackedActivations if packs else None
            model.around_forward = Compaction if compacts else None
            train_step(model, optimizer, batch, "fp32")

        return work

    seconds = alternating([step(), step(packs=True), step(compacts=True)])
    return {
        "whole_bytes": kept[True],
        "kept_bytes": kept[False],
        "seconds": seconds[0],
        "packed_seconds": seconds[1],
        "compacted_seconds": seconds[2],
    }


def _kept_bytes(model: Model, batch: Batch, *, is_counting: bool) -> int:
    with PackedActivations(model.layers, is_counting=is_counting) as activations:
        mean_losses(model(*batch.inputs), batch.labels, batch.shares).backward()
    return activations.kept_bytes
