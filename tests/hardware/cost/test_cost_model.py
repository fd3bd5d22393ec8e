"""Predictions against the formula worked out by hand, and what must hold whatever the figures are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.hardware.cost.cost_model import (
    COLD_LOG_DEVIATION,
    CostModel,
    interval,
    log_deviation,
    predict,
    predict_memory_bytes,
)
from shunter.hardware.cost.memory_model import (
    CUDA_CONTEXT_BYTES,
    HALF_KERNEL_BYTES,
    HEAP_WASTE,
    KERNEL_BYTES,
    memory_on,
)
from shunter.hardware.types import Placement
from tests.hardware.profiles import make_profile, make_workload

OVERHEAD = 100e-6
EMBEDDINGS = 3 * 640 * 1000 / 1e9


def loading(batch_size: int, threads: int) -> float:
    """Where no core is free: 20 operators, three rows of 64 bytes and 100 bytes a sample, from the step's own cores."""
    return (20e-6 + batch_size * (3 * 64 / 1e9 + 100 / 10e9)) / threads


def place(threads: int = 4, batch_size: int = 1000, precision: str = "fp32", accelerator: str = "cpu") -> Placement:
    return Placement.model_validate(
        {"accelerator": accelerator, "threads": threads, "precision": precision, "batch_size": batch_size}
    )


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        pytest.param(place(), 0.01 + EMBEDDINGS + OVERHEAD + loading(1000, 4), id="all cores"),
        pytest.param(place(precision="bf16"), 0.005 + EMBEDDINGS + OVERHEAD + loading(1000, 4), id="half precision"),
        pytest.param(place(threads=1), 0.04 + 4 * EMBEDDINGS + OVERHEAD, id="one of four cores"),
        pytest.param(place(batch_size=1), (0.01 + EMBEDDINGS) / 1000 + OVERHEAD + loading(1, 4), id="overhead alone"),
    ],
)
def test_step_seconds(placement: Placement, seconds: float) -> None:
    assert predict(make_workload(), placement, make_profile()).step_seconds == pytest.approx(seconds)


def test_memory_traffic_bounds_a_step_with_little_arithmetic() -> None:
    workload = make_workload(matmul_flops_per_sample=1.0, activation_bytes_per_sample=10**6)
    assert predict(workload, place(), make_profile()).step_seconds == pytest.approx(
        0.2 + EMBEDDINGS + OVERHEAD + loading(1000, 4)
    )


def test_epoch_counts_the_last_unfull_batch() -> None:
    prediction = predict(make_workload(train_samples=2001), place(), make_profile())
    assert prediction.epoch_seconds == pytest.approx(3 * prediction.step_seconds)
    assert prediction.samples_per_second == pytest.approx(2001 / prediction.epoch_seconds)


def test_energy_is_the_power_of_the_cores_in_use() -> None:
    assert CostModel(make_profile()).watts(place(threads=4)) == pytest.approx(30.0)
    assert CostModel(make_profile()).watts(place(threads=1)) == pytest.approx(15.0)
    assert CostModel(make_profile(name="cuda:0", cores=80)).watts(
        place(accelerator="cuda:0", threads=1)
    ) == pytest.approx(30.0)
    prediction = predict(make_workload(), place(), make_profile())
    assert prediction.epoch_joules == pytest.approx(30 * prediction.epoch_seconds)


def test_a_gpu_rests_while_the_host_launches_its_kernels() -> None:
    profile, on_gpu = make_profile(name="cuda:0", cores=80), place(accelerator="cuda:0", threads=1)
    small, large = (
        predict(make_workload(), on_gpu.model_copy(update={"batch_size": size}), profile) for size in (1, 1_000_000)
    )
    assert profile.idle_watts is not None
    for prediction in (small, large):
        share = (prediction.parts["dense"] + prediction.parts["embedding"]) / prediction.step_seconds
        watts = profile.idle_watts.value + share * (30 - profile.idle_watts.value)
        assert prediction.epoch_joules == pytest.approx(watts * prediction.epoch_seconds)


def test_unknown_power_is_unavailable_energy() -> None:
    prediction = predict(make_workload(), place(), make_profile(idle_watts=None))
    assert (prediction.epoch_joules, prediction.energy_source) == (None, "unavailable")


def test_a_prediction_never_calls_itself_measured() -> None:
    prediction = predict(make_workload(), place(), make_profile())
    sources = (prediction.step_seconds_source, prediction.energy_source, prediction.memory_source)
    assert sources == ("estimated", "estimated", "estimated")


def test_memory_counts_the_process_on_a_cpu_and_the_context_on_a_gpu() -> None:
    model, step = 2 * 10**8 + 10**7, 2 * 1000 * 1000 + 3 * 100 * 1000
    assert predict_memory_bytes(make_workload(), place(), make_profile(), 7) == model + step + KERNEL_BYTES + 7
    on_gpu = predict_memory_bytes(make_workload(), place(accelerator="cuda:0"), make_profile(name="cuda:0"), 7)
    assert on_gpu == model + step + CUDA_CONTEXT_BYTES


def test_memory_peaks_in_the_step_where_nothing_is_read_back_at_the_end() -> None:
    step = 2 * 1000 * 1000 + 3 * 100 * 1000
    expected = 10**8 + 10**7 + (1 + HEAP_WASTE) * step + KERNEL_BYTES
    assert predict_memory_bytes(make_workload(), place(), make_profile(), restores=False) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("instruction_sets", "loaded"), [((), 1), (("avx2", "avx512f"), 1), (("avx2", "fma"), 0), (("asimd", "bf16"), 0)]
)
def test_kernels_for_bf16_take_memory_where_the_processor_has_avx512(
    instruction_sets: tuple[str, ...], loaded: int
) -> None:
    half, full = (
        memory_on("cpu", make_workload(), placement, instruction_sets=instruction_sets)
        for placement in (place().model_copy(update={"precision": "bf16"}), place())
    )
    assert half - full == loaded * HALF_KERNEL_BYTES


def test_several_processes_share_the_batch() -> None:
    alone, shared = (
        predict_memory_bytes(make_workload(activation_bytes_per_sample=10**6), placement, make_profile())
        for placement in (place(), place().model_copy(update={"processes": 4}))
    )
    in_use = 2 * 10**6 * 1000 + 3 * 100 * 1000
    assert alone - shared == pytest.approx(0.75 * (1 + HEAP_WASTE) * in_use, rel=1e-3)


@given(st.integers(1, 4096), st.integers(1, 2))
def test_more_samples_a_step_take_longer_and_more_threads_never_do_while_a_core_is_free_for_the_loader(
    batch_size: int, threads: int
) -> None:
    workload, profile = make_workload(), make_profile()
    seconds = predict(workload, place(threads, batch_size), profile).step_seconds
    assert predict(workload, place(threads, batch_size + 1), profile).step_seconds > seconds
    assert predict(workload, place(threads + 1, batch_size), profile).step_seconds <= seconds


def test_the_parts_are_the_whole() -> None:
    prediction = predict(make_workload(), place(), make_profile())
    assert set(prediction.parts) == {"dense", "embedding", "communication", "input", "overhead"}
    assert sum(prediction.parts.values()) == pytest.approx(prediction.step_seconds)


def test_the_interval_is_wider_for_a_machine_that_nobody_measured() -> None:
    measured = predict(make_workload(), place(), make_profile())
    copied = make_profile(
        copy_bytes_per_second=make_profile().copy_bytes_per_second.model_copy(update={"source": "estimated"})
    )
    assert log_deviation(measured) == pytest.approx(COLD_LOG_DEVIATION)
    assert log_deviation(predict(make_workload(), place(), copied)) > COLD_LOG_DEVIATION
    low, high = interval(2.0, 0.0)
    assert low == high == 2.0
