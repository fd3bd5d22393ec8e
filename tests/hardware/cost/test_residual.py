"""What is learned from past steps: exact where it was seen, the cost model far from it, and honest about both."""

import math

import numpy as np
import pytest

from shunter.hardware.cost.cost_model import COLD_LOG_DEVIATION, predict
from shunter.hardware.cost.residual import Residual, StepObservation
from shunter.hardware.types import Placement, Precision, Prediction, Workload
from tests.hardware.profiles import make_profile, make_workload

PROFILE = make_profile()


def place(batch_size: int, threads: int = 4, precision: Precision = "fp32") -> Placement:
    return Placement(accelerator="cpu", threads=threads, precision=precision, batch_size=batch_size)


def predicted(placement: Placement, workload: Workload) -> Prediction:
    return predict(workload, placement, PROFILE)


def observe(placement: Placement, workload: Workload, ratio: float, model: str = "test") -> StepObservation:
    prediction = predicted(placement, workload)
    return StepObservation(
        workload=workload,
        placement=placement,
        accelerator_model=model,
        host=PROFILE.host,
        predicted_seconds=prediction.step_seconds,
        measured_seconds=prediction.step_seconds * ratio,
        measured_at="2026-01-01T00:00:00+00:00",
        parts=prediction.parts,
    )


def width(prediction: Prediction) -> float:
    assert prediction.step_seconds_interval is not None
    low, high = prediction.step_seconds_interval
    return math.log(high / low)


def test_without_observations_only_the_interval_is_added() -> None:
    workload, placement = make_workload(), place(512)
    before = predicted(placement, workload)
    after = Residual.fit([]).correct(workload, placement, before, "test")
    assert after.model_copy(update={"step_seconds_interval": None}) == before.model_copy(
        update={"step_seconds_interval": None}
    )
    assert width(after) == pytest.approx(2 * 1.645 * COLD_LOG_DEVIATION)


def test_a_seen_placement_is_set_right_and_a_distant_one_less_so() -> None:
    workload, near = make_workload(), place(512)
    residual = Residual.fit([observe(near, workload, 2.0)])
    raw = predicted(near, workload)
    seen = residual.correct(workload, near, raw, "test")
    assert seen.step_seconds == pytest.approx(2 * raw.step_seconds, rel=0.1)
    assert seen.epoch_seconds / raw.epoch_seconds == pytest.approx(seen.step_seconds / raw.step_seconds)
    far = place(4, threads=1, precision="bf16")
    unseen = residual.correct(workload, far, predicted(far, workload), "test")
    assert 1 < unseen.step_seconds / predicted(far, workload).step_seconds < 1.7
    assert width(seen) < width(unseen)


def test_an_unknown_accelerator_learns_less_from_a_known_one() -> None:
    workload, placement = make_workload(), place(512)
    residual = Residual.fit([observe(placement, workload, 2.0)])
    known, unknown = (
        residual.correct(workload, placement, predicted(placement, workload), model) for model in ("test", "other")
    )
    assert known.step_seconds > unknown.step_seconds > predicted(placement, workload).step_seconds
    assert width(known) < width(unknown)


def test_what_was_left_out_is_predicted_from_its_neighbours() -> None:
    workload = make_workload()
    placements = [
        place(2**power, threads, precision)
        for power in range(6, 12)
        for threads in (1, 2, 4)
        for precision in ("fp32", "bf16")
    ]

    def ratio(placement: Placement) -> float:
        """Errors that grow with the batch and with threads, as a cost model's do."""
        return 1.5 * placement.batch_size**0.1 * placement.threads**0.3 * (0.7 if placement.precision == "bf16" else 1)

    left_out = place(512, 2, "bf16")
    residual = Residual.fit(
        [observe(placement, workload, ratio(placement)) for placement in placements if placement != left_out]
    )
    raw = predicted(left_out, workload)
    after = residual.correct(workload, left_out, raw, "test")
    assert after.step_seconds / raw.step_seconds == pytest.approx(ratio(left_out), rel=0.05)
    assert after.step_seconds_interval is not None
    assert after.step_seconds_interval[0] < raw.step_seconds * ratio(left_out) < after.step_seconds_interval[1]


def test_a_measured_step_is_never_corrected() -> None:
    workload, placement = make_workload(), place(512)
    measured = predicted(placement, workload).model_copy(update={"step_seconds_source": "measured"})
    assert Residual.fit([observe(placement, workload, 2.0)]).correct(workload, placement, measured) == measured


def test_many_at_once_are_as_one_by_one() -> None:
    workload = make_workload()
    residual = Residual.fit([observe(place(64), workload, 1.3), observe(place(1024), workload, 0.8)])
    several = [(place(size), predicted(place(size), workload), "test") for size in (64, 128, 2048)]
    together = residual.correct_all(workload, several)
    for corrected, (placement, prediction, model) in zip(together, several, strict=True):
        alone = residual.correct(workload, placement, prediction, model)
        assert corrected.step_seconds == pytest.approx(alone.step_seconds)


def test_an_observation_with_noise_of_its_own_teaches_less() -> None:
    workload, placement = make_workload(), place(512)
    raw = predicted(placement, workload)
    sharp = observe(placement, workload, 2.0)
    corrected = [
        Residual.fit([sharp.model_copy(update={"log_deviation": noise})]).correct(workload, placement, raw, "test")
        for noise in (0.0, 0.3, 3.0)
    ]
    seconds = [prediction.step_seconds for prediction in corrected]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[2] == pytest.approx(raw.step_seconds, rel=0.05)
    assert width(corrected[0]) < width(corrected[1]) < width(corrected[2])


def test_compiled_steps_and_others_teach_nothing_about_each_other() -> None:
    workload, placement = make_workload(), place(512)
    eager = [observe(place(size), workload, 2.0) for size in (128, 256, 512)]
    compiled = [
        step.model_copy(update={"compiled": True, "measured_seconds": step.measured_seconds / 8}) for step in eager
    ]
    raw = predicted(placement, workload)
    alone = Residual.fit(eager).correct(workload, placement, raw, "test")
    assert Residual.fit([*eager, *compiled]).correct(workload, placement, raw, "test") == alone
    of_compiled = Residual.fit([*eager, *compiled], compiled=True).correct(workload, placement, raw, "test")
    assert of_compiled.step_seconds < alone.step_seconds / 4
    assert Residual.fit(compiled).observations == 0


def test_a_model_of_which_nothing_was_seen_is_as_unsure_as_others_were_when_left_out() -> None:
    """Each model errs in a way of its own, which hardly shows in how its own settings differ."""
    random = np.random.default_rng(0)
    models = [
        make_workload(matmul_flops_per_sample=2e5 * 1.3**number, parameter_bytes=int(1e6 * 1.3**number))
        for number in range(36)
    ]
    offsets = dict(zip(range(len(models)), random.normal(0, 0.25, len(models)), strict=True))
    inside = {"known": [], "new": []}
    for first in range(0, 30, 6):
        seen = range(first, first + 6)
        history = [
            observe(place(size, threads), models[number], math.exp(offsets[number] + random.normal(0, 0.02)))
            for number in seen
            for size in (64, 512, 4096)
            for threads in (1, 4)
        ]
        residual = Residual.fit(history)
        for kind, numbers in {"known": seen, "new": set(range(36)) - set(seen)}.items():
            for number in numbers:
                placement = place(1024)
                found = residual.correct(models[number], placement, predicted(placement, models[number]), "test")
                low, high = found.step_seconds_interval or (0.0, 0.0)
                inside[kind].append(
                    low <= predicted(placement, models[number]).step_seconds * math.exp(offsets[number]) <= high
                )
    assert np.mean(inside["new"]) >= 0.78, "0.77 where it is not told by the models that were seen"
    assert np.mean(inside["known"]) >= 0.8
