"""Measured steps beside what the cost model says of them: what later choices, and the watch over a run, learn from."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from engine.data.dataset import Dataset
from engine.probes.measurement import Measurement
from hardware.cost.cost_model import predict
from hardware.cost.residual import Residual, StepObservation
from hardware.types import HardwareProfile, Placement, Prediction, Workload
from models.spec import ModelSpec
from planner.describe import describe


def probe_observations(
    found: Mapping[Placement, Measurement | None], workload: Workload, profiles: Sequence[HardwareProfile]
) -> list[StepObservation]:
    """The probes that found the memory to suffice, in the order in which they were made.

    Args:
        found: Measurements by placement.
        workload: Demand of what was probed.
        profiles: Profiles of the accelerators on which it was.
    """
    by_name = {profile.accelerator.name: profile for profile in profiles}
    return [
        _observation(workload, placement, by_name[placement.accelerator], measurement.step_seconds)
        for placement, measurement in found.items()
        if measurement is not None
    ]


def step_observation(
    dataset: Dataset, spec: ModelSpec, placement: Placement, profile: HardwareProfile, measured_seconds: float
) -> StepObservation:
    """One training's mean step beside the cost model's prediction.

    Args:
        dataset: Data of the training.
        spec: Architecture of the model.
        placement: Placement of the training.
        profile: Profile of the accelerator there.
        measured_seconds: Mean wall clock of a step, waiting for its batch included.
    """
    return _observation(describe(dataset, spec), placement, profile, measured_seconds)


def expected_step(
    dataset: Dataset,
    spec: ModelSpec,
    placement: Placement,
    profile: HardwareProfile,
    observations: Sequence[StepObservation],
) -> Prediction:
    """What one architecture is expected to take at a placement, set right by the probes of another.

    Args:
        dataset: Data of the training.
        spec: Architecture of the model.
        placement: Placement of the training.
        profile: Profile of the accelerator there.
        observations: Observations of steps on this machine.
    """
    workload = describe(dataset, spec)
    prediction = predict(workload, placement, profile)
    return Residual.fit(observations).correct(workload, placement, prediction, profile.accelerator.model)


def _observation(
    workload: Workload, placement: Placement, profile: HardwareProfile, measured_seconds: float
) -> StepObservation:
    prediction = predict(workload, placement, profile)
    return StepObservation(
        workload=workload,
        placement=placement,
        accelerator_model=profile.accelerator.model,
        host=profile.host,
        machine=profile.machine,
        predicted_seconds=prediction.step_seconds,
        measured_seconds=measured_seconds,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        parts=prediction.parts,
    )
