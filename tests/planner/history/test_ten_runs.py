"""Ten runs of one job through a real store: what missed is not tried again, and the choices become better."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.data.dataset import Dataset, SplitStatistics
from engine.probes.measurement import Measurement
from hardware.types import EnergyReading, Placement
from planner.choose import choose
from planner.decide import Decision
from planner.history import read_history
from planner.history.record import FlowNotes, flow_evidence
from shunter.errors import QualityMissedError
from shunter.requests import Limits, TrainRequest
from tasks.select import log_decision
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.planner.measurements import measurement
from tracking.convention import data_params
from tracking.evidence import Evidence, Figures, data_key, log_evidence
from tracking.runs import finish, start_run_tree

ASKED = 0.78
RUNS = 10
NOISE = 0.05  # of the work from run to run, and of a step from probe to probe, in log seconds


@dataclass
class World:
    """A machine and a job, as a table: large batches are fast, need more passes, and the largest are never good.

    Attributes:
        random: Source of the noise.
        batch_sizes: Those that were run, in their order.
        missed: Those that missed the quality.
        seconds: What each run took until its end.
    """

    random: np.random.Generator
    batch_sizes: list[int] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def measure(self, _: Any, __: Any, placement: Placement, steps: int) -> Measurement:
        """A probe: a fixed part, and a part for each sample; threads and precision change nothing."""
        return measurement(self.step_seconds(placement.batch_size) * self.noise(), steps=steps)

    def step_seconds(self, batch_size: int) -> float:
        """Of one step, without noise."""
        return 2e-3 + 4e-6 * batch_size

    def passes(self, batch_size: int) -> float:
        """Passes over the data until training ends, without noise."""
        return 4.0 * (1 + batch_size / 1500)

    def is_good(self, batch_size: int) -> bool:
        """Whether the quality is reached."""
        return batch_size < 2000

    def epoch_seconds(self, dataset: Dataset, batch_size: int) -> float:
        """Of one pass, without noise."""
        return math.ceil(dataset.splits["train"].rows / batch_size) * self.step_seconds(batch_size)

    def noise(self) -> float:
        """A factor about 1."""
        return float(np.exp(NOISE * self.random.standard_normal()))

    def run(self, decision: Decision, dataset: Dataset, request: TrainRequest) -> None:
        """Do what was decided, and leave in the store what `shunter train` leaves."""
        size = decision.placement.batch_size
        passes = self.passes(size) * self.noise()
        seconds = passes * self.epoch_seconds(dataset, size) * self.noise()
        auc = (ASKED + 0.01 if self.is_good(size) else ASKED - 0.03) + 0.001 * float(self.random.standard_normal())
        run_id = start_run_tree(request, dataset)
        log_decision(run_id, decision)
        member = Evidence(
            kind="member",
            outcome="reached",
            epochs=passes,
            measured=Figures(seconds=seconds, joules=20 * seconds, joules_source="measured"),
        )
        notes = FlowNotes(data=data_key(data_params(dataset)), decision=decision, auc=auc)
        error = None if auc >= ASKED else QualityMissedError(f"The model reached AUC {auc:.4f}.", auc)
        total = EnergyReading.of(20 * seconds, seconds, "measured", "a counter")
        evidence = flow_evidence("train", request, notes, total=total, trainings=[member], error=error)
        log_evidence(run_id, evidence)
        finish(run_id, "FINISHED" if error is None else "FAILED", reason=str(error) if error else None)
        self.batch_sizes.append(size)
        self.seconds.append(seconds)
        self.missed += [] if error is None else [size]


def _large(folder: Path) -> Dataset:
    """Data of two million rows by their statistics: none is read, since the probes are of a table."""
    dataset = write_dataset(folder / "data", rows=200)
    return replace(dataset, splits=dict.fromkeys(dataset.splits, SplitStatistics(rows=2_000_000, positives=500_000)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_failure_is_repeated_and_choices_improve(tracking_root: Path, tmp_path: Path, seed: int) -> None:
    dataset = _large(tmp_path)
    request = TrainRequest(trials=2, max_epochs=10, ensemble_size=1, limits=Limits(min_auc=ASKED), explore=True)
    world, profile = World(np.random.default_rng(seed)), make_profile(cores=1)
    for number in range(RUNS):
        history = read_history()
        assert len(history.runs) == number
        decision = choose(dataset, request, [profile], probe_seconds=600, history=history, measure=world.measure)
        world.run(decision, dataset, request)
    print(world.batch_sizes, world.missed, [round(s, 2) for s in world.seconds])
    print(
        {
            size: round(world.passes(size) * world.epoch_seconds(dataset, size), 2)
            for size in (64, 128, 256, 512, 1024, 2048, 4096)
        }
    )
    assert world.missed, "by plan the largest batch comes first, and misses"
    assert len(set(world.missed)) == len(world.missed), "a batch size that missed was tried again"
    assert all(map(world.is_good, world.batch_sizes[-3:]))
    needed = {size: world.passes(size) * world.epoch_seconds(dataset, size) for size in (64, 128, 256, 512, 1024)}
    regret = [needed[size] / min(needed.values()) - 1 for size in world.batch_sizes[-3:]]
    assert float(np.mean(regret)) < 0.15
    assert sum(world.seconds[-3:]) < 0.6 * 3 * world.seconds[0]
    assert len([run for run in read_history().runs if run.is_censored]) == len(world.missed)
