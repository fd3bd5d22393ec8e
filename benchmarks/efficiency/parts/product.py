"""Product quantisation of a DLRM that is 1,024 wide, beside 8 bits and pruning: speed on the scoring path, and AUC.

Every compression is tried as `shunter compress` does it: chosen on the validation part, fine-tuned on the training
part. Frappe's own test part is not in its file, so that half of its validation part is set aside as one here, which
trains and chooses nothing.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.efficiency.part import Part
from benchmarks.quality.data import write_frappe
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset, SplitName, SplitStatistics
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import ClickJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.passes.role import Pass, passes_of
from shunter.extensions.compression.bench import Bench
from shunter.extensions.compression.compression_requests import TOLERATED_AUC_LOSS, CompressRequest
from shunter.extensions.compression.fine_tune import FineTuning
from shunter.extensions.compression.subject import CompressionLimits, CompressionSubject, QualityLimit, search_choices
from shunter.models.registry import Model, model_spec

SEED, EPOCHS, TRAIN_BATCH = 0, 5, 2_048
SPEC = model_spec("dlrm", embedding_dim=16, top_widths=(1_024, 1_024, 1_024), dropout=0.5, dropout_kind="structured")
RATES = Hyperparameters(
    dense_learning_rate=1e-3,
    embedding_learning_rate=0.1,
    embedding_l2=2e-4,
    embedding_initial_bound=0.03,
    learning_rate_schedule="plateau",
)
KEYS = {"product": "pq", "int8": "int8", "pruning": "pruning"}
FIGURES = {"inference_speedup": "speedup", "auc_loss": "auc_loss", "test_auc_loss": "test_auc_loss"}
ROUNDS = 9
QUICK_SPEC = replace(SPEC, top_widths=(256, 256))
MODEL = Path.home() / ".cache" / "shunter" / "benchmarks" / "efficiency-dlrm"


def measure(*, quick: bool) -> Part:
    """Each compression on one model; the headline is product quantisation's, with its rivals' beside."""
    request = CompressRequest()
    with TemporaryDirectory() as folder:
        dataset = split_frappe(Path(folder), rows=20_000 if quick else None)
        model = trained(dataset, quick=quick)
        given = BatchLoader(dataset, "validation", request.batch_rows).read(slice(0, request.batch_rows))
        bench = Bench(dataset, Execution(), lambda one, rows: one(*rows.inputs), given, processor_seconds)
        loader = BatchLoader(dataset, "train", request.calibration_rows, shuffle=True)
        subject = CompressionSubject(
            model=model,
            bench=bench,
            calibration=next(iter(loader.batches())),
            limits=CompressionLimits(QualityLimit("auc", bench.quality(model).auc - TOLERATED_AUC_LOSS)),
            fine_tuning=FineTuning(rows=2_048 if quick else request.fine_tune_rows),
            search=search_choices,
        )
        rows = {one.name: compressed(subject, one) for one in passes_of("compression")}
    cells = [(name, *_cells(row)) for name, row in rows.items()]
    report.table("Compressions", ("", "speedup", "AUC lost", "on the test part", "bytes", "outcome"), cells)
    headline = {
        f"{key}_{figure}": round(rows[name][source], 4)
        for name, key in KEYS.items()
        for figure, source in FIGURES.items()
        if "speedup" in rows[name]
    }
    kept = {name: row["speedup"] for name, row in rows.items() if row["is_kept"]}
    winner = max(kept, key=lambda name: kept[name]) if kept else None
    headline_with_winner = {**headline, "compression_winner": winner}
    return Part(headline_with_winner, {"compressions": rows, "spec": SPEC.to_dict()}, (SEED,))


def compressed(subject: CompressionSubject, one: Pass[CompressionSubject]) -> dict[str, Any]:
    """What became of a compression; its test figures chose nothing."""
    began = time.process_time()
    made = one.apply(subject)
    gain = one.gain(subject, made)
    figures = {figure.name: (figure.before, figure.after) for figure in gain.figures}
    bench = subject.bench
    before, after = (evaluate(each.model, bench.dataset, "test", bench.execution).metrics for each in (subject, made))
    return {
        "is_kept": gain.is_worth,
        "reason": gain.reason,
        "form": made.form_name,
        "milliseconds": figures["batch_milliseconds"],
        "speedup": figures["batch_milliseconds"][0] / figures["batch_milliseconds"][1],
        "auc_loss": figures["auc"][0] - figures["auc"][1],
        "test_auc_loss": before.auc - after.auc,
        "test_auc": before.auc,
        "bytes": int(figures["weight_bytes"][1]),
        "search_processor_seconds": time.process_time() - began,
    }


def split_frappe(folder: Path, rows: int | None) -> Dataset:
    """Frappe, with half of its validation part, drawn at random, as the test part."""
    dataset = write_frappe(folder, rows)
    arrays = {name: np.load(folder / f"validation.{name}.npy") for name in ("categorical", "label")}
    order = np.random.default_rng(SEED).permutation(len(arrays["label"]))
    parts: dict[SplitName, np.ndarray] = {"validation": order[: len(order) // 2], "test": order[len(order) // 2 :]}
    splits = dict(dataset.splits)
    for part, chosen in parts.items():
        for name, values in arrays.items():
            np.save(folder / f"{part}.{name}.npy", values[chosen])
        splits[part] = SplitStatistics(rows=len(chosen), positives=int(arrays["label"][chosen].sum()))
    return replace(dataset, splits=splits)


def trained(dataset: Dataset, *, quick: bool) -> Model:
    """The model, from what an earlier run has kept where there is one."""
    if not quick and MODEL.exists():
        found = load_model(MODEL)
        assert isinstance(found, Model)
        return found.eval()
    execution = Execution(batch_size=512 if quick else TRAIN_BATCH, threads=os.cpu_count() or 1)
    schedule = Schedule(max_epochs=1 if quick else EPOCHS, patience=2, seed=SEED)
    model = train(ClickJob(dataset, QUICK_SPEC if quick else SPEC, RATES, execution, schedule)).model
    if not quick:
        save_model(model, MODEL)
    return model


def processor_seconds(works: Sequence[Callable[[], object]]) -> list[float]:
    """The median processor time of each of some works, which take turns."""
    found: list[list[float]] = [[] for _ in works]
    for round_number in range(ROUNDS + 1):
        for place, work in enumerate(works):
            began = time.process_time()
            work()
            if round_number:
                found[place].append(time.process_time() - began)
    return [median(seconds) for seconds in found]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    figures = (f"{row['speedup']:.2f}", f"{row['auc_loss']:+.4f}", f"{row['test_auc_loss']:+.4f}")
    return (*figures, f"{row['bytes']:,}", row["reason"])
