"""The benchmark of a step runs on a GPU, and counts joules there."""

from functools import partial

import pytest
import torch

from benchmarks.train_step import rivals
from benchmarks.train_step.race import FEATURES, SPEC, Plan, Setting, batches, race
from benchmarks.train_step.rivals import Prepare, Variant
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


@pytest.mark.parametrize("device", [pytest.param(torch.device(GPU), marks=ON_GPU)])
@pytest.mark.parametrize("rival", ["plain", "torchrec"])
def test_a_recorded_rival_learns_what_it_learns_otherwise(device: torch.device, rival: str) -> None:
    """From the same weights, and after the steps that come before a recording, which are of the same batch."""
    build = rivals.plain if rival == "plain" else partial(rivals.torchrec, tables="fused")

    def losses(*, recorded: bool) -> list[float]:
        torch.manual_seed(0)
        prepare: Prepare = build(SPEC, FEATURES, device, variant=Variant(recorded=recorded))
        [batch, *_] = batches(512, device)
        step = prepare(batch)
        for _ in range(0 if recorded else rivals.STEPS_BEFORE_RECORDING):
            step()
        return [float(step()) for _ in range(5)]

    assert losses(recorded=True) == pytest.approx(losses(recorded=False), rel=1e-3)
