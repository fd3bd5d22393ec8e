"""Trainings of every family and of every kind, small and from fixed seeds: their weights and their quality."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.checkpoint.warm_start import SharedRows, WarmStart
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.metrics import Metrics
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.solver import SolvedResult, solve_ranking
from shunter.engine.ranking.trainer import RankingResult, train_ranking
from shunter.engine.results import TrainResult
from shunter.extensions.distributed.executors.process_group import ProcessGroup
from shunter.extensions.distributed.training import Machine, Sharding
from shunter.hardware.types import Placement
from shunter.models.graph import GraphSpec, graph_spec
from shunter.models.graph.model import GraphModel
from shunter.models.graph.ranker import VectorRanker
from shunter.models.registry import model_spec
from shunter.models.spec import ModelSpec
from tests.engine.interruptions import interrupt_at
from tests.engine.loop.test_sequence import write_sessions
from tests.engine.ranking.data import ranking_data
from tests.engine.several_labels import with_tasks, with_weights
from tests.engine.synthetic import memory_of_rows, write_dataset

FILE = "engine.json"
ROWS = 1_200
EXECUTION = Execution(threads=1, batch_size=64)
SCHEDULE = Schedule(max_epochs=2, patience=4, seed=3)
RANKING_RATES = RankingHyperparameters(learning_rate=0.01, weight_decay=1e-3, negatives=4)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1, weight_decay=1e-4)
SIZES: dict[str, Any] = {"embedding_dim": 8, "bottom_widths": (8,), "top_widths": (16, 8), "dropout": 0.2}
SPEC = model_spec("dlrm", **SIZES)
MACHINE = Machine(memory_bytes=2 << 30, memory_bytes_per_second=1e10, link_bytes_per_second=1e9)
TOGETHER = replace(SPEC, dropout=0.0)  # every process would draw for itself
TWO_THREADS = replace(EXECUTION, threads=2)
STOPPED_AT = 9  # of 14 steps of the first epoch
FAMILIES = {
    "dlrm": SPEC,
    "dnn": model_spec("dnn", **SIZES, batch_norm=True),
    "deepfm": model_spec("deepfm", **SIZES),
    "dcnv2": model_spec("dcnv2", **SIZES, cross_rank=4),
    "finalmlp": model_spec("finalmlp", **SIZES, fusion_heads=2),
    "dhen": model_spec("dhen", **SIZES, interactions=("dot", "attention", "cross", "linear", "convolution")),
    "dmt": model_spec("dmt", **SIZES, towers=2),
    "dlrm of mixed tables": replace(SPEC, table_dims=(4, 8, 8, 4), table_shares=(1.0, 0.5, 1.0, 0.25)),
    "dlrm of fm": replace(SPEC, interaction="fm"),
}
GRAPHS = {
    "lightgcn": graph_spec(embedding_dim=8, layers=2),
    "sage": graph_spec(family="sage", embedding_dim=8, layers=2, neighbours=3),
    "hetero": graph_spec(family="hetero", embedding_dim=8, layers=2),
}
CLOSED_FORMS = {name: graph_spec(family=name) for name in ("ease", "ials", "itemknn")}
OPTIMIZERS = ("adagrad", "sgd", "shampoo")


def clicks(folder: Path) -> Dataset:
    """The data of most trainings."""
    return write_dataset(folder / "clicks", rows=ROWS)


def hash_of(tensors: dict[str, torch.Tensor]) -> str:
    """One hash over all values, by sorted name."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def figures(metrics: Metrics) -> dict[str, Any]:
    """What is compared of a quality."""
    own = {name: getattr(metrics, name) for name in ("ne", "auc", "logloss", "calibration", "rows")}
    return {**own, **{name: figures(other) for name, other in metrics.others.items()}}


def outcome(result: TrainResult, dataset: Dataset) -> dict[str, Any]:
    """What is compared of a training."""
    test = evaluate(result.model, dataset, "test", EXECUTION)
    reports = [
        {"step": one.step, "train_logloss": one.train_logloss, **figures(one.validation)} for one in result.history
    ]
    return {
        "weights": hash_of(dict(result.model.state_dict())),
        "epochs": reports,
        "best_epoch": result.best_epoch,
        "samples_seen": result.samples_seen,
        "test": figures(test.metrics),
        "predictions": hash_of({"logits": torch.from_numpy(test.logits)}),
    }


def of_spec(spec: ModelSpec, folder: Path, **others: Any) -> dict[str, Any]:
    """A training of one architecture, all else as usual but for what is given."""
    dataset = clicks(folder)
    given = {"hyperparameters": RATES, "execution": EXECUTION, "schedule": SCHEDULE, **others}
    return outcome(train(TrainingJob(dataset, spec, **given)), dataset)


def of_optimizer(name: str, folder: Path) -> dict[str, Any]:
    """A training by another optimiser, with weight decay of everything."""
    rates = replace(RATES, dense_optimizer=name, embedding_l2=1e-3, embedding_initial_bound=0.05)
    return of_spec(SPEC, folder, hyperparameters=rates)


def of_sequence(folder: Path) -> dict[str, Any]:
    """A training of the family that reads histories position by position."""
    dataset = write_sessions(folder / "sessions", rows=ROWS)
    spec = model_spec(family="sequence", embedding_dim=8, encoder_widths=(16,), top_widths=(16,))
    return outcome(train(TrainingJob(dataset, spec, RATES, replace(EXECUTION, batch_size=128), SCHEDULE)), dataset)


def of_several_labels(folder: Path) -> dict[str, Any]:
    """A training of two tasks with weights of samples and of tasks."""
    dataset = with_weights(with_tasks(clicks(folder)))
    spec = replace(SPEC, task_tower_width=8)
    rates = replace(RATES, task_weights=(1.0, 0.5))
    return outcome(train(TrainingJob(dataset, spec, rates, EXECUTION, SCHEDULE)), dataset)


def of_interrupted(folder: Path) -> dict[str, Any]:
    """A training that is interrupted and goes on."""
    dataset = clicks(folder)
    job = TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE)
    checkpointing = Checkpointing(folder / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        train(job, Hooks(on_step=interrupt_at(STOPPED_AT)), checkpointing)
    return outcome(train(job, checkpointing=checkpointing), dataset)


def of_embedding_cache(folder: Path) -> dict[str, Any]:
    """A training whose tables lie in a file."""
    dataset = clicks(folder)
    execution = replace(EXECUTION, embedding_memory_bytes=memory_of_rows(180, SPEC.embedding_dim, dataset))
    job = TrainingJob(dataset, SPEC, RATES, execution, SCHEDULE)
    return outcome(train(job, checkpointing=Checkpointing(folder / "checkpoint")), dataset)


def of_warm_start(folder: Path) -> dict[str, Any]:
    """A training that goes on from a model of other data, of whose ids the even ones mean the same."""
    former = write_dataset(folder / "former", rows=ROWS, seed=7)
    save_model(train(TrainingJob(former, SPEC, RATES, EXECUTION, SCHEDULE)).model, folder / "model")
    dataset = clicks(folder)
    even = {field.name: np.arange(0, field.rows, 2) for field in dataset.features.categorical}
    warm_start = WarmStart(folder / "model", {name: SharedRows(ids, ids) for name, ids in even.items()})
    return outcome(train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE, warm_start)), dataset)


def together() -> ProcessGroup:
    """Two processes of this machine."""
    placement = Placement(accelerator="cpu", threads=2, precision="fp32", batch_size=64, processes=2)
    return ProcessGroup(placement, Sharding(machine=MACHINE))


def of_two_processes(folder: Path) -> dict[str, Any]:
    """A training that two processes share."""
    dataset = clicks(folder)
    result = together().run(
        TrainingJob(dataset, TOGETHER, RATES, TWO_THREADS, SCHEDULE), checkpointing=Checkpointing(folder / "checkpoint")
    )
    return outcome(result, dataset)


def ranking_outcome(result: RankingResult | SolvedResult) -> dict[str, Any]:
    """What is compared of a training of a graph model, or of a model that is solved."""
    epochs = [
        {"step": one.step, "train_loss": one.train_loss, "ndcg20": one.validation.ndcg20} for one in result.history
    ]
    ranker = VectorRanker.of(result.model) if isinstance(result.model, GraphModel) else result.model
    return {
        "weights": hash_of(dict(ranker.state_dict())),
        "epochs": epochs,
        "best_epoch": result.best_epoch,
        "samples_seen": result.samples_seen,
        "parameters": sum(parameter.numel() for parameter in result.model.parameters()),
    }


def of_graph(spec: GraphSpec, folder: Path) -> dict[str, Any]:
    """A training of a graph model."""
    data = ranking_data(folder / "graph")
    return ranking_outcome(train_ranking(TrainingJob(data, spec, RANKING_RATES, EXECUTION, SCHEDULE)))


def of_solved(spec: GraphSpec, folder: Path) -> dict[str, Any]:
    """A ranking model in closed form."""
    data = ranking_data(folder / "solved")
    return ranking_outcome(solve_ranking(TrainingJob(data, spec, RANKING_RATES, EXECUTION, SCHEDULE)))


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{name: partial(of_spec, spec) for name, spec in FAMILIES.items()},
    "sequence": of_sequence,
    **{name: partial(of_graph, spec) for name, spec in GRAPHS.items()},
    **{name: partial(of_solved, spec) for name, spec in CLOSED_FORMS.items()},
    **{name: partial(of_optimizer, name) for name in OPTIMIZERS},
    "two labels": of_several_labels,
    "bf16": partial(of_spec, SPEC, execution=replace(EXECUTION, precision="bf16")),
    "interrupted": of_interrupted,
    "embedding cache": of_embedding_cache,
    "warm start": of_warm_start,
}
SLOW_CASES: dict[str, Callable[[Path], dict[str, Any]]] = {"two processes": of_two_processes}
