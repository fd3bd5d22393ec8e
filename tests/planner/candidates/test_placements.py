"""Which placements are considered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.hardware.types import DenseDemand, Quantity
from shunter.planner.candidates.placements import (
    STEPS_PER_EPOCH,
    batch_sizes,
    placements,
    precisions,
    sizes_of_kinds,
    sizes_worth_trying,
    thread_counts,
)
from tests.hardware.profiles import make_profile, make_workload


@pytest.mark.parametrize(
    ("cores", "threads"), [(1, [1]), (2, [1, 2]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (96, [1, 2, 4, 8, 16, 32, 64, 96])]
)
def test_thread_counts(cores: int, threads: list[int]) -> None:
    assert thread_counts(make_profile(cores=cores)) == threads


def test_a_gpu_needs_one_thread() -> None:
    assert thread_counts(make_profile(name="cuda:0", cores=132)) == [1]


@pytest.mark.parametrize(("rate", "offered"), [(200e9, ["fp32", "bf16"]), (100e9, ["fp32"]), (5e9, ["fp32"])])
def test_bf16_is_offered_where_it_was_measured_to_be_faster(rate: float, offered: list[str]) -> None:
    rates = {name: Quantity(value=value, source="measured") for name, value in (("fp32", 100e9), ("bf16", rate))}
    assert precisions(make_profile(matmul_flops_per_second=rates)) == offered


@pytest.mark.parametrize(
    ("samples", "sizes"),
    [
        (80_000, [64, 128, 256, 512]),
        (6_400, [64]),
        (6_399, [64]),
        (10, [10]),
        (10_000_000, [64, 128, 256, 512, 1024, 2048, 4096, 8192]),
    ],
)
def test_batch_sizes(samples: int, sizes: list[int]) -> None:
    assert batch_sizes(samples) == sizes


@given(st.integers(1, 10**9))
def test_an_epoch_keeps_enough_steps_or_there_is_one_size_only(samples: int) -> None:
    sizes = batch_sizes(samples)
    assert all(size <= samples for size in sizes)
    assert len(sizes) == 1 or samples / max(sizes) >= STEPS_PER_EPOCH


def test_a_graph_model_may_take_larger_batches_and_past_runs_allow_larger_ones() -> None:
    assert sizes_worth_trying(80_000, []) == batch_sizes(80_000)
    assert max(sizes_worth_trying(80_000, [], of_graph=True)) == 2048, "25 steps of an epoch are left"
    assert max(sizes_worth_trying(10**8, [], of_graph=True)) == 32_768
    assert max(sizes_worth_trying(10**8, [8192])) == 16_384


def test_a_gpu_takes_larger_batches_of_as_many_steps_an_epoch() -> None:
    profiles = [make_profile(cores=1), make_profile(name="cuda:0")]

    def largest(samples: int) -> dict[str, int]:
        found = placements(make_workload(train_samples=samples), profiles)
        return {name: max(one.batch_size for one in found if one.accelerator == name) for name in ("cpu", "cuda:0")}

    assert largest(10**8) == {"cpu": 8_192, "cuda:0": 32_768}
    assert largest(2_000_000) == {"cpu": 8_192, "cuda:0": 16_384}, "100 steps of an epoch are left"
    assert largest(80_000) == {"cpu": 512, "cuda:0": 512}
    assert sizes_of_kinds(10**8, [32_768])["cuda"][-1] == 65_536, "past runs allow larger ones"


def test_every_combination_on_every_accelerator_occurs_once() -> None:
    profiles = [make_profile(cores=2), make_profile(name="cuda:0")]
    found = placements(make_workload(train_samples=80_000), profiles)
    assert len(found) == len(set(found)) == (2 * 2 + 1 * 2) * 4
    assert {placement.accelerator for placement in found} == {"cpu", "cuda:0"}


def test_only_precisions_that_the_workload_was_counted_in_are_offered() -> None:
    rates = {name: Quantity(value=value, source="measured") for name, value in (("fp32", 100e9), ("bf16", 200e9))}
    demand = DenseDemand(
        traffic_bytes_per_sample=1,
        traffic_bytes_per_step=1,
        operators_per_step=1,
        peak_bytes_per_sample=1,
        peak_bytes_per_step=1,
    )
    found = placements(make_workload(dense={"fp32": demand}), [make_profile(matmul_flops_per_second=rates)])
    assert {placement.precision for placement in found} == {"fp32"}
