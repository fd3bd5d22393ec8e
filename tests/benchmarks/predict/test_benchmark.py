"""The judgement of predictions, on measurements made up so that the answer is known."""

from typing import Any

import pytest

from benchmarks.predict.benchmark import Setting, errors, judge_steps, nearest_seconds, read_settings, right_choices
from shunter.hardware.cost.cost_model import CostModel
from shunter.hardware.types import Placement, Workload
from tests.hardware.profiles import make_profile, make_workload

PROFILE = make_profile()
WORKLOADS = {"light": make_workload(), "heavy": make_workload(matmul_flops_per_sample=1e7)}


def truth(workload: Workload, placement: Placement) -> float:
    """Twice what the cost model says, and a quarter more in bf16."""
    seconds = CostModel(PROFILE).predict(workload, placement).step_seconds
    return seconds * (2.5 if placement.precision == "bf16" else 2.0)


def measurements() -> dict[str, Any]:
    placements = [
        Placement.model_validate({"accelerator": "cpu", "threads": threads, "precision": precision, "batch_size": size})
        for threads in (1, 2)
        for precision in ("fp32", "bf16")
        for size in (64, 256, 1024)
    ]
    return {
        "profile": PROFILE.model_dump(mode="json"),
        "workloads": {name: workload.model_dump(mode="json") for name, workload in WORKLOADS.items()},
        "settings": [
            {
                "model": name,
                "placement": placement.model_dump(),
                "rounds": [
                    {"step_seconds": truth(workload, placement), "others_share": 0.01},
                    {"step_seconds": 100.0, "others_share": 0.5},  # a disturbed round must not count
                ],
            }
            for name, workload in WORKLOADS.items()
            for placement in placements
        ],
    }


@pytest.fixture(scope="module")
def settings() -> list[Setting]:
    return read_settings(measurements(), PROFILE)


def test_disturbed_rounds_do_not_count(settings: list[Setting]) -> None:
    assert all(one.seconds == pytest.approx(truth(one.workload, one.placement)) for one in settings)
    assert all(one.spread == 0 for one in settings)


def test_perfect_predictions_miss_nothing_and_choose_rightly(settings: list[Setting]) -> None:
    measured = [one.seconds for one in settings]
    assert errors(settings, measured).max() == 0
    assert right_choices(settings, measured) == (1.0, 2 * 3 + 2)


def test_predictions_upside_down_choose_wrongly(settings: list[Setting]) -> None:
    upside_down = [one.placement.batch_size**2 / one.seconds for one in settings]
    assert right_choices(settings, upside_down)[0] == 0.0


def test_the_nearest_setting_is_scaled_by_samples(settings: list[Setting]) -> None:
    position = next(i for i, one in enumerate(settings) if one.placement.batch_size == 1024)
    neighbour = next(one for one in settings if one.placement.batch_size == 256)
    assert nearest_seconds(settings, position) == pytest.approx(4 * neighbour.seconds)


def test_what_other_settings_teach_beats_the_cost_model_alone() -> None:
    headline, details = judge_steps(measurements())
    assert headline["cold_error"] == pytest.approx(0.55, abs=0.06)
    assert headline["median_error"] < 0.05
    assert headline["settings"] == len(details["predicted"]) == 24
    assert headline["median_error"] < headline["nearest_error"]
