"""Power that was measured teaches the energy of what was not; power that was estimated teaches nothing."""

from pathlib import Path

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.measurement import Measurement
from shunter.hardware.types import Placement
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec
from shunter.planner.choose import choose
from shunter.planner.decide import Decision
from shunter.planner.history import History
from shunter.planner.predict.watts import observed_watts
from shunter.requests import TrainRequest
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.planner.measurements import measurement, past_run

PROFILE = make_profile(cores=4)  # 10 W at rest, 30 W with four cores at work
FACTOR = 3.0  # the truth draws so much more


def true_watts(placement: Placement) -> float:
    return FACTOR * (10 + 5 * placement.threads)


def probe(dataset: Dataset, spec: ModelSpec | GraphSpec, placement: Placement, steps: int) -> Measurement:
    return measurement(
        0.001 * placement.batch_size / placement.threads,
        steps=steps,
        mean_watts=true_watts(placement),
        watts_measured=True,
    )


def guess(dataset: Dataset, spec: ModelSpec | GraphSpec, placement: Placement, steps: int) -> Measurement:
    return probe(dataset, spec, placement, steps).model_copy(update={"watts_measured": False})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=20_000)


def errors(decision: Decision) -> list[float]:
    """Relative errors of the watts of the placements whose energy was not measured."""
    rows = [row for row in decision.table if row.candidate.prediction.energy_source == "estimated"]
    return [abs((row.watts or 0.0) / true_watts(row.candidate.placement) - 1) for row in rows]


def test_measured_probes_set_the_energy_of_every_other_placement_right(dataset: Dataset) -> None:
    decision = choose(dataset, TrainRequest(), [PROFILE], probe_seconds=600, measure=probe)
    assert errors(decision)
    assert max(errors(decision)) < 0.15, "the profile alone is 67 % below"
    assert any("power of cpu is learned from" in note for note in decision.notes)
    assert all(observation.mean_watts for observation in decision.observations)


def test_estimated_probes_leave_the_profile_as_it_is(dataset: Dataset) -> None:
    decision = choose(dataset, TrainRequest(), [PROFILE], probe_seconds=600, measure=guess)
    assert min(errors(decision)) > 0.5
    assert not any("is learned from" in note for note in decision.notes)
    assert not any(observation.mean_watts for observation in decision.observations)


def test_the_power_of_past_runs_is_known_before_anything_is_measured(dataset: Dataset) -> None:
    earlier = choose(dataset, TrainRequest(), [PROFILE], probe_seconds=600, measure=probe)
    history = History(steps=earlier.observations)
    decision = choose(dataset, TrainRequest(), [PROFILE], probe_seconds=0, history=history)
    assert max(errors(decision)) < 0.25


def test_joules_of_a_training_from_before_its_power_was_kept_are_its_power(dataset: Dataset) -> None:
    observed = choose(dataset, TrainRequest(), [PROFILE], probe_seconds=600, measure=guess).observations[0]
    run = past_run(observed.placement, kind="member", family=None, seconds=20.0, joules=900.0, steps=(observed,))
    (found,) = observed_watts(History(runs=(run,), steps=run.steps))
    assert found.mean_watts == 45.0
    unmeasured = run.model_copy(update={"joules": None})
    assert observed_watts(History(runs=(unmeasured,), steps=run.steps)) == []


def test_the_published_error_is_that_of_the_power_every_choice_learns(tmp_path: Path) -> None:
    """The tables' rows go through the product's own functions; a power that can be learned is learned."""
    from benchmarks.predict.energy import judge_energy

    rows = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"]
    for number, network in enumerate(("one", "two")):
        for power in range(4, 9):
            for limit in (100, 150, 200, 250):
                watts = min(limit * 0.95, 90 + 12 * power + 30 * number)
                rows += [f"data,{network},{2**power},adam,{limit},{100 / power},{watts}"]
    (tmp_path / "summary_power_v100.csv").write_text("\n".join(rows) + "\n")
    headline, _ = judge_energy(tmp_path, ["V100"])
    assert headline["energy_settings"] == 40
    assert headline["energy_error"] < 0.03
    assert headline["energy_error"] < headline["energy_error_two_points"]
    assert headline["energy_error"] <= headline["energy_error_new_workload"]
