"""Ten runs of one job through a real store: what missed is not tried again, and the choices become better."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shunter.engine.data.dataset import Dataset, SplitStatistics
from shunter.engine.probes.measurement import Measurement
from shunter.errors import QualityNotReachedError
from shunter.hardware.types import EnergyReading, Placement
from shunter.planner.choose import choose
from shunter.planner.decide import Decision
from shunter.planner.history import read_history
from shunter.planner.history.record import FlowNotes, flow_evidence
from shunter.requests import Limits, TrainRequest
from shunter.tasks.select import log_decision
from shunter.tracking.convention import data_params
from shunter.tracking.evidence import Evidence, Figures, PairedTrial, data_key, log_evidence
from shunter.tracking.runs import finish, start_run_tree
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.planner.measurements import measurement

ASKED = 0.78
TRIALS = 9
REQUEST = TrainRequest(trials=TRIALS, max_epochs=10, ensemble_size=1, limits=Limits(min_auc=ASKED))
RUNS = 10
NOISE = 0.05  # of the work from run to run, and of a step from probe to probe, in log seconds
GOOD_SIZES = (64, 128, 256, 512, 1024)


@dataclass
class World:
    """A machine and a job, as a table: large batches are fast, need more passes, and the largest are never good.

    Attributes:
        dataset: The data.
        random: Source of the noise.
        batch_sizes: Those that were run, in their order.
        missed: Those that missed the quality, in their order.
        seconds: What each run took until its end.
    """

    dataset: Dataset
    random: np.random.Generator
    batch_sizes: list[int] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def measure(self, _: Any, __: Any, placement: Placement, steps: int) -> Measurement:
        """A probe; threads and precision change nothing."""
        return measurement(self._step_seconds(placement.batch_size) * self._noise(), steps=steps)

    def needed(self, batch_size: int) -> float:
        """Seconds of a run, without noise."""
        epoch = math.ceil(self.dataset.splits["train"].rows / batch_size) * self._step_seconds(batch_size)
        return self._passes(batch_size) * epoch

    def run(self, decision: Decision) -> None:
        """Do what was decided until its end or a limit, and leave in the store what `shunter train` leaves."""
        size = decision.placement.batch_size
        whole = self.needed(size) * self._noise()
        longest = 3600 * (decision.watched_limits.max_hours or math.inf)
        seconds = min(whole, longest)
        auc = (ASKED + 0.03 if size in GOOD_SIZES else ASKED - 0.03) + 0.001 * float(self.random.standard_normal())
        if whole > longest:
            auc = ASKED - 0.05
        self._keep(decision, seconds, self._passes(size) * seconds / whole, auc, is_stopped=whole > longest)
        self.batch_sizes.append(size)
        self.seconds.append(seconds)
        self.missed += [size] if auc < ASKED else []

    def _keep(self, decision: Decision, seconds: float, passes: float, auc: float, *, is_stopped: bool) -> None:
        run_id = start_run_tree(REQUEST, self.dataset)
        log_decision(run_id, decision)
        figures = Figures(seconds=seconds, joules=20 * seconds, joules_source="measured")
        member = Evidence(kind="member", outcome="reached", epochs=passes, measured=figures)
        data = data_key(data_params(self.dataset))
        stopped = ENOUGH if is_stopped else None
        notes = FlowNotes(
            data=data, decision=decision, auc=auc, stop_reason=stopped, pair=self._pair(decision, seconds)
        )
        error = None if auc >= ASKED else QualityNotReachedError(f"The model reached AUC {auc:.4f}.", auc)
        total = EnergyReading.of(20 * seconds, seconds, "measured", "a counter")
        log_evidence(run_id, flow_evidence("train", REQUEST, notes, total=total, trainings=[member], error=error))
        finish(run_id, "FINISHED" if error is None else "FAILED", reason=str(error) if error else None)

    def _pair(self, decision: Decision, seconds: float) -> PairedTrial | None:
        """How the extra trial that explores compares with the trial that it repeats."""
        if decision.exploration is None or decision.exploration.paired is None:
            return None
        size, tried = decision.placement.batch_size, decision.exploration.paired
        ratio = self.needed(tried.batch_size) / self.needed(size) * self._noise()
        return PairedTrial(
            placement=tried,
            beside=decision.placement,
            seconds=ratio * seconds / TRIALS,
            seconds_ratio=ratio,
            epochs_ratio=self._passes(tried.batch_size) / self._passes(size),
            ne_ratio=1.0 if tried.batch_size in GOOD_SIZES else 1.2,
            is_stopped=False,
        )

    def _step_seconds(self, batch_size: int) -> float:
        return 2e-3 + 4e-6 * batch_size

    def _passes(self, batch_size: int) -> float:
        return 4.0 * (1 + batch_size / 1500)

    def _noise(self) -> float:
        return float(np.exp(NOISE * self.random.standard_normal()))


@pytest.mark.slow
def test_no_failure_is_repeated_and_choices_improve(tracking_root: Path, tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", rows=200)
    # Of two million rows by its statistics: none is read, since the probes are of a table.
    data = replace(data, splits=dict.fromkeys(data.splits, SplitStatistics(rows=2_000_000, positives=500_000)))
    world, profile = World(data, np.random.default_rng(0)), make_profile(cores=1)
    for number in range(RUNS):
        history = read_history()
        assert len(history.runs) == number
        world.run(choose(data, REQUEST, [profile], probe_seconds=600, history=history, measure=world.measure))
    assert world.missed, "by plan the largest batch comes first, and misses"
    assert len(set(world.missed)) == len(world.missed), f"a batch size that missed was tried again: {world.batch_sizes}"
    best = min(map(world.needed, GOOD_SIZES))
    regret = [world.needed(size) / best - 1 for size in world.batch_sizes[-3:]]
    assert set(world.batch_sizes[-3:]) <= set(GOOD_SIZES), world.batch_sizes
    assert float(np.mean(regret)) < 0.15, world.batch_sizes
    assert sum(world.seconds[-3:]) < 0.6 * 3 * world.seconds[0]
    assert sum(run.is_censored for run in read_history().runs) == len(world.missed)
