"""Profiles made of the catalogue: complete, and never called measured."""

import json
from pathlib import Path
from statistics import median

import pytest

from benchmarks.train_step.race import FEATURES, SPEC
from shunter.engine.profiling.workload import workload_of
from shunter.hardware.catalogue.offers import OF_GPUS, catalogue_profile, measured_shares, peak_flops, row_cores
from shunter.hardware.catalogue.rows import AcceleratorRow, load_catalogue
from shunter.hardware.cost.cost_model import predict
from shunter.hardware.types import HardwareProfile, Placement, Quantity
from shunter.models.counting import count_model
from tests.hardware.profiles import make_profile, make_workload

ROWS = load_catalogue().accelerators


def figures(profile: HardwareProfile) -> list[Quantity]:
    named = [getattr(profile, name) for name in HardwareProfile.model_fields]
    return [figure for figure in (*named, *profile.matmul_flops_per_second.values()) if isinstance(figure, Quantity)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_makes_a_profile_that_predicts_and_claims_no_measurement(row: AcceleratorRow) -> None:
    profile = catalogue_profile(row)
    assert {figure.source for figure in figures(profile)} <= {"estimated", "catalogue"}
    placement = Placement(accelerator=row.name, threads=1, precision="fp32", batch_size=1024)
    prediction = predict(make_workload(), placement, profile)
    assert prediction.step_seconds > 0
    assert prediction.memory_bytes > 0
    assert (prediction.epoch_joules is None) == (row.tdp_watts is None)


def test_rates_are_shares_of_the_peaks() -> None:
    row = load_catalogue().find_accelerator("NVIDIA A100 SXM4 80GB")
    profile = catalogue_profile(row)
    matmul = profile.matmul_flops_per_second
    assert matmul["fp32"].value == pytest.approx(OF_GPUS.matrix_unit * row.peak_flops_per_second["tf32"])
    assert matmul["bf16"].value == pytest.approx(OF_GPUS.matrix_unit * row.peak_flops_per_second["bf16"])
    assert profile.copy_bytes_per_second.value == pytest.approx(0.85 * row.memory_bytes_per_second)
    old = load_catalogue().find_accelerator("P100")
    plain = catalogue_profile(old).matmul_flops_per_second["fp32"].value
    assert plain == pytest.approx(OF_GPUS.matmul * old.peak_flops_per_second["fp32"])


def test_recorded_step_of_a_gpu_is_predicted_in_time_and_energy() -> None:
    """Steps of 8,192 samples on an H200 as `benchmarks/results/train_step_gpu.json` has them."""
    row = load_catalogue().find_accelerator("H200")
    recorded = json.loads(Path("benchmarks/results/train_step_gpu.json").read_text())["details"]
    workload = workload_of(count_model(SPEC, FEATURES), train_samples=1_000_000)
    for precision in ("fp32", "bf16"):
        placement = Placement(accelerator=row.name, threads=1, precision=precision, batch_size=8192)
        found = predict(workload, placement, catalogue_profile(row))
        measured = median(recorded["times"]["8192"][f"shunter {precision}"]["wall_seconds"])
        joules = recorded["energy"]["8192"][f"shunter {precision}"]["joules_per_sample"]
        assert found.step_seconds == pytest.approx(measured, rel=0.25)
        assert (found.epoch_joules or 0) / workload.train_samples == pytest.approx(joules, rel=0.25)


def test_launches_are_never_faster_than_measured_here_even_if_this_processor_has_no_row() -> None:
    here = make_profile(operator_overhead_seconds=Quantity(value=9e-6, source="measured"))
    profile = catalogue_profile(load_catalogue().find_accelerator("H100 SXM5 80GB"), here=[here])
    assert profile.operator_overhead_seconds.value == 9e-6


def test_an_old_gpu_without_bf16_is_not_offered_in_it() -> None:
    profile = catalogue_profile(load_catalogue().find_accelerator("P100"))
    assert list(profile.matmul_flops_per_second) == ["fp32"]
    assert peak_flops(load_catalogue().find_accelerator("P100"), "bf16")[1] == "estimated"


def test_shares_measured_here_take_the_place_of_the_assumed_ones_for_the_same_kind() -> None:
    row = load_catalogue().find_accelerator("AMD EPYC 7742")
    part = 4 / row_cores(row)
    here = make_profile(
        cores=4,
        matmul_flops_per_second={
            "fp32": Quantity(value=0.5 * part * row.peak_flops_per_second["fp32"], source="measured")
        },
        copy_bytes_per_second=Quantity(value=0.25 * part * row.memory_bytes_per_second, source="measured"),
        gather_bytes_per_second=Quantity(value=0.125 * part * row.memory_bytes_per_second, source="measured"),
    )
    shares = measured_shares(here, row)
    assert (shares.matmul, shares.copy, shares.gather) == pytest.approx((0.5, 0.25, 0.125))
    other = load_catalogue().find_accelerator("AMD EPYC 7763")
    profile = catalogue_profile(other, [(here, row)])
    assert profile.matmul_flops_per_second["fp32"].value == pytest.approx(0.5 * other.peak_flops_per_second["fp32"])
    gpu = load_catalogue().find_accelerator("T4")
    fp32 = catalogue_profile(gpu, [(here, row)]).matmul_flops_per_second["fp32"].value
    assert fp32 == pytest.approx(OF_GPUS.matmul * gpu.peak_flops_per_second["fp32"])


def test_a_faster_accelerator_is_predicted_to_be_faster_at_heavy_work() -> None:
    heavy = make_workload(matmul_flops_per_sample=1e9)
    seconds = [
        predict(
            heavy, Placement(accelerator=row.name, threads=1, precision="fp32", batch_size=4096), catalogue_profile(row)
        ).step_seconds
        for row in (load_catalogue().find_accelerator(name) for name in ("K80", "V100 SXM2 16GB", "H100 SXM5 80GB"))
    ]
    assert seconds == sorted(seconds, reverse=True)
