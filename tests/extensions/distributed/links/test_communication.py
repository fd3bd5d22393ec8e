"""What is fitted comes back from exact data, and is refused where the data do not carry it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import HardwareError
from shunter.extensions.distributed.links.communication import CommunicationModel, CommunicationSample, fit_collective
from shunter.hardware.types import CollectivePoint, Quantity

SIZES = (1024, 4096, 65536, 2**20, 2**22)


def points(seconds: list[float]) -> list[CollectivePoint]:
    return [
        CollectivePoint(message_bytes=size, seconds=Quantity(value=value, source="measured"))
        for size, value in zip(SIZES, seconds, strict=True)
    ]


@settings(deadline=None)
@given(latency=st.floats(1e-6, 1e-2), bandwidth=st.floats(1e7, 1e11))
def test_an_exact_line_is_found(latency: float, bandwidth: float) -> None:
    cost = fit_collective("all_reduce", 2, "a test", points([latency + size / bandwidth for size in SIZES]))
    for size in SIZES:
        assert cost.seconds(size) == pytest.approx(latency + size / bandwidth, rel=1e-4)
    assert cost.r2 == pytest.approx(1)


def test_one_disturbed_size_does_not_bend_the_line() -> None:
    seconds = [1e-4 + size / 1e9 for size in SIZES]
    seconds[2] *= 10
    cost = fit_collective("all_reduce", 2, "a test", points(seconds))
    assert cost.latency_seconds == pytest.approx(1e-4, rel=0.1)
    assert cost.bytes_per_second == pytest.approx(1e9, rel=0.1)


def test_times_that_do_not_grow_have_no_bandwidth() -> None:
    with pytest.raises(HardwareError, match="all_gather"):
        fit_collective("all_gather", 2, "a test", points([5e-3, 4e-3, 3e-3, 2e-3, 1e-3]))


def samples(noise: float = 0.0, models: int = 6) -> list[CommunicationSample]:
    generator = np.random.default_rng(0)
    made = []
    for number in range(models):
        buckets, allreduce, alltoall = 3 + number, 1e5 * (number % 3 + 1), 2e5 * (number % 4)
        exact = 1e-4 * buckets + 1.2 * allreduce * 1.0 / 1e9 + 0.8 * alltoall * 0.5 / 1e9
        made.append(
            CommunicationSample(
                model=f"model {number}",
                buckets=buckets,
                allreduce_bytes=allreduce,
                alltoall_bytes=alltoall,
                processes=2,
                bytes_per_second=1e9,
                seconds=exact + noise * generator.normal(),
            )
        )
    return made


def test_the_model_of_trainings_comes_back_from_exact_times() -> None:
    model = CommunicationModel.fit(samples())
    assert model.bucket_seconds == pytest.approx(1e-4)
    assert model.allreduce_factor == pytest.approx(1.2)
    assert model.alltoall_factor == pytest.approx(0.8)
    assert model.r2 == pytest.approx(1)


def test_three_models_are_too_few() -> None:
    with pytest.raises(HardwareError, match="fitted to at least 4 measured models, but there are only 3"):
        CommunicationModel.fit(samples(models=3))


def test_a_model_that_explains_too_little_is_refused() -> None:
    with pytest.raises(HardwareError, match=r"explains \d+% of the variance between 6 measured models"):
        CommunicationModel.fit(samples(noise=1.0))
