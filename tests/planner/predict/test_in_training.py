"""What trainings take beyond probes: learned by threads, for this machine alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.measurement import Measurement
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import HardwareProfile, Placement, Prediction
from shunter.models.graph import GraphSpec
from shunter.models.registry import model_spec
from shunter.models.spec import ModelSpec
from shunter.planner.choose import MeasureTraining, choose
from shunter.planner.decide import Decision
from shunter.planner.describe import describe
from shunter.planner.history import History
from shunter.planner.predict.in_training import InTraining
from shunter.requests import TrainRequest
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.planner.measurements import at, measurement, step_observation

PROFILE = make_profile(cores=4)
PREDICTION = Prediction(
    step_seconds=0.01,
    step_seconds_source="measured",
    energy_source="estimated",
    step_seconds_interval=(0.009, 0.011),
    epoch_seconds=1.0,
    samples_per_second=100.0,
    epoch_joules=20.0,
    memory_bytes=1,
    parts={},
)


def step(threads: int, log_ratio: float = 0.0, *, probe: bool, host: str = PROFILE.host) -> StepObservation:
    return step_observation(
        placement=at(512, threads),
        host=host,
        measured_seconds=0.012 * math.exp(log_ratio),
        steps=20 if probe else None,
        memory_bytes=1 if probe else None,
    )


def learned(*log_ratios: float, threads: int = 2) -> InTraining:
    trained = [step(threads, log_ratio, probe=False) for log_ratio in log_ratios]
    return InTraining.of([step(threads, probe=True), *trained], [PROFILE])


def test_without_trainings_all_stays_as_it_was_probed() -> None:
    for one in (InTraining.of([], [PROFILE]), learned()):
        assert one.correct(at(512, 2), PREDICTION) == PREDICTION
        assert one.notes() == []


def test_trainings_elsewhere_and_without_a_probe_to_compare_tell_nothing() -> None:
    elsewhere = [step(2, probe=True, host="ffff"), step(2, 1.5, probe=False, host="ffff")]
    assert InTraining.of(elsewhere, [PROFILE]).log_ratio(at(512, 2)) == (0.0, 0.0)
    assert InTraining.of([step(1, probe=True), step(2, 1.5, probe=False)], [PROFILE]).log_ratio(at(512, 2)) == (0, 0)


def test_slow_trainings_make_their_threads_slow_and_leave_others_their_doubt() -> None:
    one = learned(1.5, 1.4, 1.6)
    tried, untried = one.log_ratio(at(512, 2)), one.log_ratio(at(512, 1))
    assert 1.2 < tried[0] < 1.5
    assert 0.3 < untried[0] < 0.8
    assert untried[1] > 2 * tried[1]
    corrected = one.correct(at(512, 2), PREDICTION)
    assert corrected.step_seconds == pytest.approx(0.01 * math.exp(tried[0]))
    assert corrected.epoch_joules == pytest.approx(20.0 * math.exp(tried[0]))
    assert corrected.step_seconds_interval is not None
    low, high = corrected.step_seconds_interval
    assert high / low > 0.011 / 0.009
    assert one.notes() == [
        f"Steps of past training runs on cpu took {math.exp(tried[0]):.2g} times as long on 2 thread(s) as short "
        "probes, which the prediction includes."
    ]


@given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=20))
def test_what_is_believed_lies_between_the_probe_and_what_trainings_showed(log_ratios: list[float]) -> None:
    mean, deviation = learned(*log_ratios).log_ratio(at(512, 2))
    shown = [max(-math.log(10), min(math.log(10), one)) for one in log_ratios]
    assert min(0.0, *shown) - 1e-9 <= mean <= max(0.0, *shown) + 1e-9
    assert 0 < deviation < math.hypot(0.4, 0.4)


def test_trainings_are_taken_for_probes_where_the_cost_model_is_set_right() -> None:
    one = learned(1.5, 1.5, 1.5)
    probe, training, other = step(2, probe=True), step(2, 1.5, probe=False), step(2, 1.5, probe=False, host="ffff")
    as_probed = one.as_probed([probe, training, other])
    assert as_probed[0] == probe
    assert as_probed[2] == other
    assert as_probed[1].measured_seconds == pytest.approx(0.012 * math.exp(1.5 - one.log_ratio(at(512, 2))[0]))
    assert as_probed[1].log_deviation > 0


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=20_000)


def test_threads_that_trainings_showed_to_be_slow_are_not_chosen_again(dataset: Dataset) -> None:
    """Probes find two threads 30 % faster; a training on two took four times as long as its probe."""
    profile = make_profile(cores=2)

    def measure(_dataset: Dataset, _spec: ModelSpec | GraphSpec, where: Placement, steps: int) -> Measurement:
        seconds = (1e-3 + 2e-6 * where.batch_size) / (1.3 if where.threads == 2 else 1.0)
        return measurement(seconds, steps=steps, memory_bytes=2**20)

    first = chosen(dataset, profile, History(), measure)
    assert first.placement.threads == 2
    trained = [
        one.model_copy(update={"measured_seconds": 4 * one.measured_seconds, "steps": None, "memory_bytes": None})
        for one in first.observations
        if one.placement == first.placement
    ]
    again = chosen(dataset, profile, History(steps=(*first.observations, *trained)), measure)
    assert again.placement.threads == 1
    assert any("times as long on 2 thread(s)" in note for note in again.notes)
    assert describe(dataset, model_spec()) == again.workload


def chosen(dataset: Dataset, profile: HardwareProfile, history: History, measure: MeasureTraining) -> Decision:
    request = TrainRequest(batch_sizes="64", parallel_trials=1)
    return choose(dataset, request, [profile], history=history, measure=measure)
