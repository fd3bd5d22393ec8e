"""Costs fitted to passes over tables, and what a step is predicted to take with them."""

import pytest

from shunter.hardware.cost.step_costs import TableTime, fit_start, fit_table_costs
from shunter.hardware.cost.step_model import scaled_seconds, table_seconds
from shunter.hardware.types import StepCosts
from tests.hardware.profiles import make_workload

TRUTH = StepCosts(
    threads=1, start_seconds=0.0, bag_seconds=2e-8, lookup_seconds=5e-9, cached_byte_seconds=1e-10, byte_seconds=4e-10
)


def table_time(bags: int, ids: int, row_bytes: int, *, cached: bool) -> TableTime:
    byte = TRUTH.cached_byte_seconds if cached else TRUTH.byte_seconds
    seconds = 1e-4 + bags * (TRUTH.bag_seconds + ids * (TRUTH.lookup_seconds + row_bytes * byte))
    return TableTime(bags=bags, lookups=bags * ids, row_bytes=row_bytes, cached=cached, seconds=seconds)


TIMES = [
    table_time(64, 1, 64, cached=True),
    table_time(8192, 1, 64, cached=True),
    table_time(8192, 1, 256, cached=True),
    table_time(2048, 16, 64, cached=True),
    table_time(8192, 1, 64, cached=False),
    table_time(8192, 1, 256, cached=False),
]


def test_the_costs_behind_exact_times_are_found() -> None:
    assert fit_table_costs(1, TIMES).model_dump() == pytest.approx(TRUTH.model_dump(), rel=1e-6)


def test_noise_makes_no_cost_negative_and_memory_no_faster_than_the_caches() -> None:
    noisy = [
        TableTime(**{**vars(table_pass), "seconds": table_pass.seconds * (1 + 0.5 * (-1) ** i)})
        for i, table_pass in enumerate(TIMES)
    ]
    costs = fit_table_costs(1, noisy)
    assert min(costs.bag_seconds, costs.lookup_seconds, costs.cached_byte_seconds) >= 0
    assert costs.byte_seconds >= costs.cached_byte_seconds


def test_skewed_lookups_come_from_the_caches() -> None:
    uniform = make_workload(tables=10)
    skewed = make_workload(tables=10, access_curve=((1e6, 0.9), (1e9, 1.0)))
    assert skewed.cached_share(1e6) == pytest.approx(0.9)
    assert uniform.cached_share(1e6) == 0.0
    cached, missed = 640 * TRUTH.cached_byte_seconds, 640 * TRUTH.byte_seconds
    fixed = 10 * TRUTH.bag_seconds + 10 * TRUTH.lookup_seconds
    assert table_seconds(TRUTH, uniform, 1000, 10**6) == pytest.approx(1000 * (fixed + missed))
    assert table_seconds(TRUTH, skewed, 1000, 10**6) == pytest.approx(1000 * (fixed + 0.9 * cached + 0.1 * missed))


@pytest.mark.parametrize(("share", "seconds"), [(0.25, 8.0), (1.0, 2.0), (0.5, 4.0), (0.1, 8.0)])
def test_seconds_between_measured_numbers_of_threads_follow_a_power_law(share: float, seconds: float) -> None:
    assert scaled_seconds([(0.25, 8.0), (1.0, 2.0)], share) == pytest.approx(seconds)


def test_nothing_measured_costs_nothing() -> None:
    assert scaled_seconds([], 0.5) == 0.0


def test_start_and_factor_behind_exact_steps_are_found() -> None:
    arithmetic, memory = (1e-4, 8e-4, 2e-4), (2e-4, 4e-3, 3e-4)
    measured = [work + 3e-4 + 1.8 * slow for work, slow in zip(arithmetic, memory, strict=True)]
    assert fit_start(measured, arithmetic, memory) == pytest.approx((3e-4, 1.8))


def test_memory_is_never_faster_within_a_step_than_alone() -> None:
    assert fit_start([1e-3, 3e-3], [0.0, 0.0], [1e-3, 6e-3])[1] == 1.0
    assert fit_start([1e-3, 3e-3], [2e-3, 6e-3], [1e-3, 6e-3]) == (0.0, 1.0)
