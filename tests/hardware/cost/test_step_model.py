"""Products, rows and collectives, each by its own measured curve."""

import pytest

from shunter.hardware.cost.matmul_model import MatmulModel, product_bytes
from shunter.hardware.cost.step_model import (
    LOOPBACK_SHARE,
    StepModel,
    link_bytes_per_second,
    message_share,
    row_seconds,
    scaled_collective_seconds,
)
from shunter.hardware.types import (
    Collective,
    CollectiveCost,
    DenseDemand,
    Matmul,
    MatmulRate,
    Placement,
    Quantity,
    RowRate,
    StepCosts,
)
from tests.hardware.profiles import make_profile, make_workload

SHAPES = [(m, width, width) for width in (16, 64, 256, 1024) for m in (128, 512, 2048)]


def measured(value: float) -> Quantity:
    return Quantity(value=value, source="measured")


def rate(m: int, n: int, k: int) -> MatmulRate:
    """A machine of 200 GFLOP/s and 50 GB/s that takes 3 us to start."""
    flops = 2.0 * m * n * k
    seconds = flops / 200e9 + product_bytes(m, n, k, 4) / 50e9 + 3e-6
    return MatmulRate(m=m, n=n, k=k, flops_per_second=measured(flops / seconds))


def place(batch_size: int = 1000, threads: int = 1, processes: int = 1, accelerator: str = "cpu") -> Placement:
    return Placement(
        accelerator=accelerator, threads=threads, precision="fp32", batch_size=batch_size, processes=processes
    )


def test_products_between_measured_sizes_are_predicted_by_the_three_costs_behind_them() -> None:
    model = MatmulModel.fit([rate(*shape) for shape in SHAPES], 4)
    assert model.seconds(1, 300, 100, 700) == pytest.approx(
        2 * 300 * 100 * 700 / 200e9 + product_bytes(300, 100, 700, 4) / 50e9 + 3e-6
    )


def test_half_of_the_cores_take_twice_the_arithmetic_and_no_more_of_the_rest() -> None:
    model = MatmulModel.fit([rate(*shape) for shape in SHAPES], 4)
    arithmetic = 2 * 512**3 / 200e9
    assert model.seconds(1, 512, 512, 512, share=0.5) - model.seconds(1, 512, 512, 512) == pytest.approx(arithmetic)


def test_without_a_curve_the_slower_of_arithmetic_and_traffic_counts() -> None:
    model = MatmulModel.of(make_profile(), "fp32")
    assert model.seconds(1, 1000, 1000, 1000) == pytest.approx(2e9 / 100e9)
    assert model.seconds(1, 1000, 1, 1000) == pytest.approx(product_bytes(1000, 1, 1000, 4) / 10e9)


def test_each_product_of_a_workload_is_counted_at_its_own_size() -> None:
    workload = make_workload(
        lookups_per_sample=0,
        lookup_bytes_per_sample=0,
        matmuls=(
            Matmul(count=1, m=1, n=64, k=16, batch_axis="m", half=True),
            Matmul(count=1, m=8, n=8, k=4, batch_axis="count", half=False),
        ),
        dense={
            "fp32": DenseDemand(
                traffic_bytes_per_sample=200,
                traffic_bytes_per_step=1e6,
                operators_per_step=10,
                peak_bytes_per_sample=1,
                peak_bytes_per_step=1,
            )
        },
    )
    profile = make_profile(matmul_curve={"fp32": tuple(rate(*shape) for shape in SHAPES)})
    model = MatmulModel.of(profile, "fp32")
    products = model.seconds(1, 1000, 64, 16, share=0.25) + model.seconds(1000, 8, 8, 4, share=0.25)
    parts = StepModel(profile).parts(workload, place())
    assert parts.dense == pytest.approx(products + (200 * 1000 + 1e6) / (10e9 * 0.5))
    assert parts.overhead == pytest.approx(10 * 1e-6)
    slow = StepCosts(
        threads=1,
        start_seconds=1e-3,
        memory_factor=2.0,
        bag_seconds=0,
        lookup_seconds=0,
        cached_byte_seconds=0,
        byte_seconds=0,
    )
    slower = StepModel(profile.model_copy(update={"step_costs": (slow,)})).parts(workload, place())
    large = model.seconds(1, 1000, 64, 16, share=0.25)
    assert slower.dense == pytest.approx(large + 2 * (parts.dense - large))
    assert slower.overhead == pytest.approx(parts.overhead + 1e-3)


@pytest.mark.parametrize(("row_bytes", "seconds"), [(64, 1e-8), (128, 2e-8), (96, 1.5e-8), (16, 1e-8), (512, 8e-8)])
def test_rows_between_and_beyond_the_measured_widths(row_bytes: float, seconds: float) -> None:
    curve = [RowRate(row_bytes=width, bytes_per_second=measured(64 / 1e-8)) for width in (64, 128)]
    assert row_seconds(curve, row_bytes) == pytest.approx(seconds)


def test_collectives_are_carried_over_to_other_numbers_of_processes() -> None:
    pair = CollectiveCost(
        operation="all_reduce", processes=2, link="test", latency_seconds=1e-4, bytes_per_second=1e9, r2=1.0, points=()
    )
    assert scaled_collective_seconds([pair], 1e6, 2) == pytest.approx(pair.seconds(1e6))
    assert scaled_collective_seconds([pair], 1e6, 8) == pytest.approx(3e-4 + 1.75 * 1e-3)
    assert message_share("all_gather", 4) == 3.0


def test_the_link_is_that_of_the_nearest_measured_number_of_processes_or_a_share_of_a_copy() -> None:
    def cost(operation: Collective, processes: int, rate: float) -> CollectiveCost:
        fit = {"link": "test", "latency_seconds": 0.0, "r2": 1.0, "points": ()}
        return CollectiveCost(operation=operation, processes=processes, bytes_per_second=rate, **fit)

    rates = (cost("all_to_all", 2, 2e9), cost("all_to_all", 8, 8e9), cost("all_reduce", 4, 4e9))
    profile = make_profile().model_copy(update={"collectives": rates})
    assert [link_bytes_per_second(profile, count) for count in (2, 4, 8, 64)] == [2e9, 2e9, 8e9, 8e9]
    unmeasured = make_profile().model_copy(update={"collectives": ()})
    assert link_bytes_per_second(unmeasured, 2) == unmeasured.copy_bytes_per_second.value * LOOPBACK_SHARE


def test_several_devices_share_the_work_and_pay_for_their_messages() -> None:
    workload = make_workload(dense_parameter_bytes=10**6, tables=10)
    model = StepModel(make_profile(name="cuda:0", cores=80))
    alone, four = (
        model.parts(workload, place(batch_size=4096, processes=count, accelerator="cuda:0")) for count in (1, 4)
    )
    assert four.dense == pytest.approx(alone.dense / 4)
    assert four.embedding == pytest.approx(alone.embedding / 4)
    assert four.communication > alone.communication == 0.0


def test_waiting_is_only_what_does_not_fit_beside_the_step() -> None:
    light = make_workload(matmul_flops_per_sample=1.0, activation_bytes_per_sample=0, lookups_per_sample=0)
    heavy = make_workload()
    model = StepModel(make_profile(name="cuda:0", cores=80))
    assert model.parts(heavy, place(accelerator="cuda:0")).input == 0.0
    assert model.parts(light, place(batch_size=100_000, accelerator="cuda:0")).input > 0.0


def test_an_accelerator_that_skips_zeros_gains_in_the_backward_products_alone() -> None:
    workload = make_workload(backward_speedups={"both": 4.0})
    plain = StepModel(make_profile()).raw_parts(workload, place())
    skipping = StepModel(make_profile().model_copy(update={"skips_zeros": "both"})).raw_parts(workload, place())
    assert skipping.products == pytest.approx(plain.products * (1 + 2 / 4) / 3)
    assert (skipping.traffic, skipping.tables) == (plain.traffic, plain.tables)
    half_known = StepModel(make_profile().model_copy(update={"skips_zeros": "inputs"})).raw_parts(workload, place())
    assert half_known == plain


def test_a_part_of_the_cores_works_as_fast_as_so_many_threads_of_the_whole() -> None:
    whole, workload = make_profile(cores=4), make_workload()
    part = whole.with_cores(1).with_cores(2)
    assert part.accelerator.cores == 1, "a part does not grow"
    assert part.rated_cores == 4
    assert StepModel(part).raw_parts(workload, place()) == StepModel(whole).raw_parts(workload, place())
    assert whole.with_cores(8) == whole
