"""The benchmark of a step runs on a GPU, and counts joules there."""

import pytest
import torch

from benchmarks.train_step.benchmark import Plan, Setting, race
from tests.gpu.devices import GPU, ON_GPU


@pytest.mark.parametrize("device", [pytest.param(torch.device(GPU), marks=ON_GPU)])
def test_every_contestant_is_timed_and_its_joules_counted(device: torch.device) -> None:
    """Tables of five million rows for each: too much for the processor of a test."""
    setting = Setting(device=str(device), threads=1, wait_policy="PASSIVE")
    plan = Plan(sizes=(2_048,), rounds=1, compiled=False, dense_gradients=False, energy_seconds=1.0)
    found = race(setting, plan)
    assert found["times"][2_048].keys() == found["energy"][2_048].keys()
    for one in found["energy"][2_048].values():
        assert one["joules_per_sample"] > 0, one["source"]
