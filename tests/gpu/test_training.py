"""Whole trainings on a device: repeated, resumed, compiled, divided, timed, and their joules."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.loop.compile import compile_layers
from shunter.engine.loop.step import applied, build_dense_optimizer, train_step
from shunter.engine.loop.step_clock import step_clock
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.extensions.distributed.executors.process_group import ProcessGroup
from shunter.extensions.distributed.training import Machine, Sharding
from shunter.hardware.meters.meter import EnergyMeter, measure_energy
from shunter.hardware.types import Placement
from shunter.models.registry import build_model, model_spec
from tests.engine.interruptions import assert_same_weights, interrupt_at
from tests.engine.synthetic import write_dataset
from tests.gpu.devices import GPU, ON_GPU

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.3)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1, embedding_l2=1e-3)
SCHEDULE = Schedule(max_epochs=2, patience=4, seed=3)
# Of 50 Zipf-like ids the most frequent one stands more than 1,024 times in a batch, where FBGEMM divides its sum.
BATCH_SIZE = 4_096

MACHINE = Machine(memory_bytes=2 << 30, memory_bytes_per_second=1e10, link_bytes_per_second=1e9)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=30_000)


def job(dataset: Dataset, device: torch.device, **options: object) -> ClickJob:
    execution = Execution(device=str(device), threads=1, batch_size=BATCH_SIZE)
    return TrainingJob(dataset, SPEC, RATES, replace(execution, **options), SCHEDULE)  # pyright: ignore[reportArgumentType]


def assert_same(one: TrainResult, other: TrainResult) -> None:
    assert_same_weights(one, other)
    assert [report.train_logloss for report in one.history] == [report.train_logloss for report in other.history]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_training_repeats_bit_by_bit(dataset: Dataset, device: torch.device, precision: str) -> None:
    asked = job(dataset, device, precision=precision)
    assert_same(train(asked), train(asked))


def test_an_interrupted_training_ends_bit_by_bit_as_an_undisturbed_one(
    dataset: Dataset, device: torch.device, tmp_path: Path
) -> None:
    assert_resumed_as_undisturbed(job(dataset, device), tmp_path)


def assert_resumed_as_undisturbed(asked: ClickJob, directory: Path) -> None:
    """Compare a training that was interrupted with one that was not."""

    with pytest.raises(KeyboardInterrupt):
        train(asked, Hooks(on_step=interrupt_at(7)), Checkpointing(directory))
    assert_same(train(asked, checkpointing=Checkpointing(directory)), train(asked))


@pytest.mark.long
def test_compiled_layers_learn_what_eager_ones_learn(dataset: Dataset, device: torch.device) -> None:
    """On a GPU these are CUDA graphs, forward and backward."""
    asked = job(dataset, device, tf32=False)
    spec = replace(SPEC, dropout=0.0)

    def losses(*, compiled: bool) -> list[float]:
        with applied(asked.execution) as on:
            model = build_model(spec, dataset.features, device=on).train()
            optimizer = build_dense_optimizer(model, RATES)
            if compiled:
                assert compile_layers(model, asked.execution) is not None
            batches = [batch.to(on) for batch in BatchLoader(dataset, "train", BATCH_SIZE).batches()]
            found = [train_step(model, optimizer, batch, "fp32").clone() for batch in batches]  # the last is smaller
            return [float(loss) for loss in found]

    assert losses(compiled=True) == pytest.approx(losses(compiled=False), rel=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_training_of_recorded_steps_is_that_of_plain_ones(
    dataset: Dataset, device: torch.device, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job(dataset, device, precision=precision)
    recorded = train(asked)
    monkeypatch.setattr("shunter.engine.loop.cuda_graph_step.WARM_UPS", 10_000)
    assert_same(recorded, train(asked))


@pytest.mark.parametrize("device", [pytest.param(torch.device(GPU), marks=ON_GPU)])
def test_a_compiled_training_is_resumed_bit_by_bit(dataset: Dataset, device: torch.device, tmp_path: Path) -> None:
    """Its reader copies batches while graphs are recorded; on a processor `tests.engine.loop.test_compile` says it."""
    asked = job(dataset, device, compiled=True)
    assert train(asked).compile_seconds > 0
    assert_resumed_as_undisturbed(asked, tmp_path)


@pytest.mark.long
def test_one_process_of_a_group_learns_what_a_process_alone_learns(
    dataset: Dataset, device: torch.device, tmp_path: Path
) -> None:
    """On a GPU its collectives are NCCL's."""
    pytest.importorskip("torchrec")
    asked = job(dataset, device, tf32=False)
    asked = replace(asked, spec=replace(SPEC, dropout=0.0))  # each process draws its own
    placement = Placement(accelerator=str(device), threads=1, precision="fp32", batch_size=BATCH_SIZE)
    divided = ProcessGroup(placement, Sharding(machine=MACHINE)).run(asked)
    alone = train(asked)
    assert [report.train_logloss for report in divided.history] == pytest.approx(
        [report.train_logloss for report in alone.history], rel=1e-4
    )


def test_products_in_tf32_cost_no_quality(dataset: Dataset, device: torch.device) -> None:
    exact, rounded = (train(job(dataset, device, tf32=tf32)).validation.ne for tf32 in (False, True))
    assert rounded == pytest.approx(exact, abs=0 if device.type == "cpu" else 0.01)


def test_a_training_counts_the_time_of_its_steps(dataset: Dataset, device: torch.device) -> None:
    result = train(job(dataset, device))
    assert result.compute_seconds > 0
    assert result.compute_seconds + result.wait_seconds <= result.train_seconds
    assert result.peak_memory_bytes > 0


def test_a_step_counts_until_the_device_has_done_it(device: torch.device) -> None:
    side = 256 if device.type == "cpu" else 8_192
    matrix = torch.randn(side, side, device=device)
    with applied(Execution(device=str(device), threads=1)):
        (matrix @ matrix).sum().item()  # what the first product sets up is not of the step
        clock = step_clock(device, lambda: 0.0)
        started = time.perf_counter()
        with clock.step():
            for _ in range(20):
                torch.mm(matrix, matrix)
        launched = time.perf_counter() - started
        [taken] = clock.finished(wait=True)
        ended = time.perf_counter() - started
    assert taken.compute <= ended
    if device.type == "cuda":
        assert taken.compute > launched, "a GPU works on after the launch has returned"


def test_joules_are_those_of_the_power_over_time(device: torch.device) -> None:
    side = 512 if device.type == "cpu" else 8_192
    matrix = torch.randn(side, side, device=device)
    read_watts = watts_of(device)

    def work(seconds: float) -> list[float]:
        ends, watts = time.perf_counter() + seconds, []
        while time.perf_counter() < ends:
            (matrix @ matrix).sum().item()
            watts.append(read_watts())
        return watts

    work(0.1 if device.type == "cpu" else 2.0)  # the sensor's power is a mean over a second
    components = measure_energy(str(device), scope="machine")._components
    with EnergyMeter(components[-1:]) as meter:
        watts = work(0.2 if device.type == "cpu" else 4.0)
    reading = meter.reading
    assert reading.joules is not None, reading.source
    assert reading.joules > 0
    assert reading.mean_watts == pytest.approx(reading.joules / reading.seconds)
    if device.type == "cuda":
        assert reading.method == "measured", reading.source
        assert reading.mean_watts == pytest.approx(fmean(watts), rel=0.25)


def watts_of(device: torch.device) -> Callable[[], float]:
    """Reads the power of a GPU from its sensor, beside the counter of its energy."""
    if device.type == "cpu":
        return lambda: 1.0
    import pynvml

    from shunter.hardware.devices.nvml import nvml_handle

    handle = nvml_handle(str(device))
    return lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1_000
