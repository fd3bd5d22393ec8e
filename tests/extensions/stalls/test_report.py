"""From measurements to a report that can be kept, and to pictures that show its figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from shunter.errors import HardwareError, RequestError
from shunter.extensions.stalls.plan import CommunicationMeasurement, StallPlan, Traffic
from shunter.extensions.stalls.report import StallReport, build_report, communication_samples
from shunter.extensions.stalls.search import choose_profile, make_plan
from shunter.hardware.types import DiskRates, Quantity
from shunter.requests import ProfileRequest
from shunter.tasks.profile import check_request
from tests.engine.synthetic import write_dataset
from tests.extensions.stalls.stall_values import make_measurements
from tests.hardware.profiles import make_profile


@pytest.fixture
def plan(tmp_path: Path) -> StallPlan:
    return make_plan(write_dataset(tmp_path / "data"), ProfileRequest(data="clicks", batch_size=64), make_profile())


def communication(number: int, seconds: float) -> CommunicationMeasurement:
    sent = {"all_reduce": 1e6 * number, "all_to_all": 2e6 * (number % 3), "reduce_scatter": 1e5, "all_gather": 5e4}
    return CommunicationMeasurement(
        model=f"model {number}",
        together=[[0.01 + seconds] * 3] * 3,
        apart=[[0.01] * 3] * 3,
        traffic=Traffic(calls={"all_reduce": 2.0, "all_to_all": 3.0}, message_bytes=sent),
    )


def test_a_cpu_is_divided_among_its_processes(plan: StallPlan) -> None:
    assert plan.processes == 2
    assert plan.execution.threads == 2, "of the four cores of the profile"
    assert plan.sharding.machine.memory_bytes == 8 * 2**30
    assert plan.link.bytes_per_second == 1.25e9, "10 Gbit/s"
    assert len({(spec.embedding_dim, spec.top_widths) for spec in plan.communication_specs}) >= 4


def test_communication_is_explained_by_what_is_sent_or_refused_in_one_sentence(plan: StallPlan) -> None:
    profile = make_profile()
    exact = [communication(number, 1e-3 + 1e-9 * 1e6 * number) for number in range(1, 6)]
    report = build_report(plan, replace(make_measurements(), communication=exact, traffic=None), profile)
    assert report.communication is not None
    assert report.communication.r2 == pytest.approx(1.0)
    assert report.communication_note == "explains 100% of the differences between 5 measured models"
    noise = [communication(number, seconds) for number, seconds in enumerate((9e-3, 1e-3, 8e-3, 0.0, 9e-3), start=1)]
    refused = build_report(plan, replace(make_measurements(), communication=noise, traffic=None), profile)
    assert refused.communication is None
    assert "is not used: measure again when the machine is idle." in refused.communication_note
    assert StallReport.model_validate_json(report.model_dump_json()) == report


def test_what_a_slow_disk_would_do_is_estimated_by_the_share_in_memory(plan: StallPlan) -> None:
    disk = DiskRates(
        sequential_bytes_per_second=Quantity(value=1e5, source="measured"),
        random_reads_per_second=Quantity(value=1e3, source="measured"),
    )
    report = build_report(plan, make_measurements(), make_profile(disk=disk))
    batch_bytes = report.data_bytes * 64 / 1400
    # Half of the disk for each of two processes, beside 8 ms of preparing; in memory, the 20 ms of S4.
    assert report.cache_what_if[0] == (0.0, pytest.approx(0.008 + batch_bytes / 5e4))
    assert report.cache_what_if[-1] == (1.0, pytest.approx(0.020))
    assert build_report(plan, make_measurements(), make_profile()).cache_what_if == ()


def test_reduce_scatter_and_all_gather_count_as_the_all_to_all_of_as_many_bytes(plan: StallPlan) -> None:
    measurements = replace(make_measurements(), communication=[communication(3, 0.0)])
    sample, profiled = communication_samples(plan, measurements, make_profile())
    assert sample.alltoall_bytes == pytest.approx(1e5 + 2 * 5e4)
    assert sample.allreduce_bytes == pytest.approx(3e6)
    assert sample.buckets == 5
    assert profiled.seconds == pytest.approx(0.016 - 0.011), "S2 - S1g"


def test_a_request_is_checked_before_anything_is_measured() -> None:
    with pytest.raises(RequestError, match=r"'dlrn'.*dlrm"):
        check_request(ProfileRequest(model="dlrn", data="ml-100k"))
    with pytest.raises(ValueError, match="--data"):
        ProfileRequest(model="dlrm")
    with pytest.raises(HardwareError, match="The accelerator cuda is not on this machine: choose one of cpu"):
        choose_profile(ProfileRequest(accelerator="cuda"), [make_profile()])
    profiles = [make_profile(), make_profile(name="cuda:0")]
    assert choose_profile(ProfileRequest(), profiles) is profiles[1]
    assert choose_profile(ProfileRequest(accelerator="cpu"), profiles) is profiles[0]
