"""The predicted peak of the memory against that of real trainings, each in a process of its own."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.config import DenseOptimizer, Execution, Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.job import Checkpointing, TrainingJob
from engine.loop.step import peak_memory_bytes, reset_peak_memory
from engine.loop.trainer import train
from engine.memory import process_bytes
from hardware.cost.memory_model import predict_memory_bytes
from hardware.types import Placement, Precision
from models.registry import model_spec
from models.spec import ModelSpec
from planner.describe import describe
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile

TOLERANCE = 0.1
SMALL = model_spec(embedding_dim=8, bottom_widths=(32,), top_widths=(64, 32))
DEEP = model_spec(embedding_dim=32, bottom_widths=(512, 256), top_widths=(512, 256, 128))


class Setting(NamedTuple):
    spec: ModelSpec
    ids: int
    batch_size: int
    precision: Precision
    optimizer: DenseOptimizer

    def __str__(self) -> str:
        name = "small" if self.spec is SMALL else "deep"
        return f"{name}-{self.ids}-{self.batch_size}-{self.precision}-{self.optimizer}"


SETTINGS = [
    Setting(SMALL, 1_000, 256, "fp32", "adam"),
    Setting(SMALL, 1_000, 8192, "fp32", "adam"),
    Setting(SMALL, 1_000, 8192, "bf16", "sgd"),
    Setting(SMALL, 400_000, 256, "fp32", "adagrad"),
    Setting(SMALL, 400_000, 8192, "bf16", "adam"),
    Setting(DEEP, 1_000, 256, "bf16", "adam"),
    Setting(DEEP, 1_000, 4096, "fp32", "adagrad"),
    Setting(DEEP, 1_000, 8192, "fp32", "adam"),
    Setting(DEEP, 1_000, 8192, "bf16", "adam"),
    Setting(DEEP, 200_000, 256, "fp32", "adam"),
    Setting(DEEP, 200_000, 4096, "bf16", "sgd"),
    Setting(DEEP, 400_000, 1024, "fp32", "adam"),
]


@pytest.fixture(scope="module")
def fresh_processes() -> Iterator[ProcessPoolExecutor]:
    """One process for each training, forked from one in which only the imports have happened."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        yield pool


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_peak_is_predicted_within_a_tenth(
    tmp_path: Path, fresh_processes: ProcessPoolExecutor, setting: Setting
) -> None:
    spec, ids, batch_size, precision, optimizer = setting
    dataset = write_dataset(tmp_path / "data", rows=3 * batch_size, dense=13, single=10, bags=2, ids=ids)
    hyperparameters = Hyperparameters(dense_optimizer=optimizer)
    execution = Execution(precision=precision, batch_size=batch_size)
    before, peak, restored = fresh_processes.submit(
        train_once, dataset, spec, hyperparameters, execution, tmp_path / "kept"
    ).result()
    placement = Placement(accelerator="cpu", threads=1, precision=precision, batch_size=batch_size)
    workload = describe(dataset, spec, hyperparameters)
    predicted = predict_memory_bytes(workload, placement, make_profile(), before, restores=restored)
    assert predicted == pytest.approx(peak, rel=TOLERANCE)


def train_once(
    dataset: Dataset, spec: ModelSpec, hyperparameters: Hyperparameters, execution: Execution, directory: Path
) -> tuple[int, int, bool]:
    """Bytes before and at the peak, and whether the best weights were read back."""
    import torch

    device = torch.device("cpu")
    before = process_bytes()
    reset_peak_memory(device)
    result = train(
        TrainingJob(dataset, spec, hyperparameters, execution, Schedule(max_epochs=2)),
        checkpointing=Checkpointing(directory),
    )
    return before, peak_memory_bytes(device), result.best_epoch < len(result.history)
