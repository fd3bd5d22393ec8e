"""Structured dropout in recurrent layers, beside ordinary dropout of the same share and none at all; torch's dropout.

Trained by the engine as the command does (`--model sequence --set encoder_dropout=0.5 dropout_kind=structured`), on
whether a user of MovieLens-1M likes a film by the films liked before; compared is the test AUC of the epoch that is
best on validation. Time is the processor time of the encoder alone, forward and backward.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from benchmarks import report
from benchmarks.efficiency.part import Part
from benchmarks.efficiency.sessions import LENGTH, write_sessions
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import ClickJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.models.dropout import Dropout
from shunter.models.families.sequence import HistoryEncoder, SequenceSpec
from shunter.models.layers import mlp
from shunter.models.registry import model_spec
from shunter.models.spec import DropoutKind

SHARE, BATCH, ROUNDS = 0.5, 256, 9
SEEDS, USERS, EPOCHS = (0, 1, 2, 3, 4), 3_000, 3
OPTIONS: dict[str, Any] = {"embedding_dim": 32, "encoder_widths": (256,), "top_widths": (64,)}
RATES = Hyperparameters(dense_learning_rate=1e-3, embedding_learning_rate=0.1, embedding_initial_bound=0.03)
WAYS: dict[str, dict[str, Any]] = {
    "none": {},
    "random": {"encoder_dropout": SHARE, "dropout_kind": "random"},
    "structured": {"encoder_dropout": SHARE, "dropout_kind": "structured"},
}
MLP_WIDTHS, MLP_BATCH, MLP_SHARE = (208, 400, 400, 400, 1), 4_096, 0.2  # of the recipes for Frappe


def measure(*, quick: bool) -> Part:
    """Times of the layers, and quality over the seeds."""
    seeds = SEEDS[:1] if quick else SEEDS
    rows = quality(seeds, quick=quick)
    encoders = {name: encoder_seconds(SequenceSpec(**OPTIONS, **way), quick=quick) for name, way in WAYS.items()}
    perceptrons = mlp_seconds(quick=quick)
    gaps = [rows["random"][seed]["auc"] - rows["structured"][seed]["auc"] for seed in map(str, seeds)]
    headline = {
        "structured_dropout_speedup": round(encoders["random"] / encoders["structured"], 3),
        "structured_dropout_speedup_over_none": round(encoders["none"] / encoders["structured"], 3),
        "dropout_mlp_speedup": round(perceptrons["torch"] / perceptrons["random"], 3),
        "structured_dropout_mlp_speedup": round(perceptrons["random"] / perceptrons["structured"], 3),
        "structured_dropout_quality_gap": round(fmean(gaps), 5),
        "structured_dropout_quality_gap_std": round(stdev(gaps), 5) if len(gaps) > 1 else None,
        "structured_dropout_gain_over_none": round(
            fmean(rows["structured"][seed]["auc"] - rows["none"][seed]["auc"] for seed in map(str, seeds)), 5
        ),
    }
    for name, of in rows.items():
        print(name, {seed: round(row["auc"], 4) for seed, row in of.items()}, f"{1e3 * encoders[name]:.1f} ms a step")
    details = {
        "quality": rows,
        "encoder_seconds": encoders,
        "mlp_seconds": perceptrons,
        "batch": BATCH,
        "length": LENGTH,
        "mlp": {"widths": MLP_WIDTHS, "batch": MLP_BATCH, "share": MLP_SHARE},
        "share": SHARE,
        "users": USERS,
    }
    return Part(headline, details, tuple(seeds))


def quality(seeds: tuple[int, ...], *, quick: bool) -> dict[str, dict[str, dict[str, float]]]:
    """Test figures of each way and seed; those that an earlier run has written down are taken from there."""
    path = report.RESULTS / "efficiency.structured_dropout.partial.json"
    known = json.loads(path.read_text()) if path.exists() and not quick else {}
    with TemporaryDirectory() as folder:
        dataset = write_sessions(Path(folder), 200 if quick else USERS)
        for seed in map(str, seeds):
            for name, way in WAYS.items():
                if seed in known.get(name, {}):
                    continue
                known.setdefault(name, {})[seed] = trained(dataset, way, int(seed), epochs=1 if quick else EPOCHS)
                if not quick:
                    path.write_text(json.dumps(known))
    return {name: {seed: known[name][seed] for seed in map(str, seeds)} for name in WAYS}


def trained(dataset: Dataset, way: dict[str, Any], seed: int, *, epochs: int) -> dict[str, float]:
    """Quality on the test part, and the processor time of the whole training."""
    spec = model_spec("sequence", **OPTIONS, **way)
    execution = Execution(batch_size=BATCH)
    began = time.process_time()
    found = train(ClickJob(dataset, spec, RATES, execution, Schedule(max_epochs=epochs, patience=2, seed=seed)))
    seconds = time.process_time() - began
    test = evaluate(found.model, dataset, "test", execution).metrics
    return {"auc": test.auc, "ne": test.ne, "validation_auc": found.validation.auc, "train_processor_seconds": seconds}


def encoder_seconds(spec: SequenceSpec, *, quick: bool = False) -> float:
    """Processor seconds of an encoder's forward and backward pass, the least of some rounds, with one thread."""
    torch.manual_seed(0)
    encoder = HistoryEncoder(replace(spec, encoder_widths=(64,)) if quick else spec).train()
    vectors = torch.randn(BATCH, LENGTH, spec.embedding_dim, requires_grad=True)
    lengths = torch.full((BATCH,), LENGTH)
    return least_seconds(lambda: encoder(vectors, lengths).sum().backward())


def mlp_seconds(*, quick: bool = False) -> dict[str, float]:
    """The same of an MLP with each kind of dropout."""
    batch = 256 if quick else MLP_BATCH
    values = torch.randn(batch, MLP_WIDTHS[0], requires_grad=True)

    def seconds(share: float, kind: DropoutKind, dropout: type[nn.Dropout] = Dropout) -> float:
        layers = mlp(MLP_WIDTHS, dropout=share, dropout_kind=kind)
        for place, layer in enumerate(layers):
            if isinstance(layer, Dropout):
                layers[place] = dropout(layer.p)
        return least_seconds(lambda: layers(values).sum().backward())

    return {
        "none": seconds(0.0, "random"),
        "torch": seconds(MLP_SHARE, "random", nn.Dropout),
        "random": seconds(MLP_SHARE, "random"),
        "structured": seconds(MLP_SHARE, "structured"),
    }


def least_seconds(work: Callable[[], object]) -> float:
    """The least processor time of some rounds, with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = []
        for _ in range(ROUNDS):
            began = time.process_time()
            work()
            found.append(time.process_time() - began)
        return min(found[1:])
    finally:
        torch.set_num_threads(threads)
