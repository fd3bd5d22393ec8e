"""Step observations: measured steps with the cost model's predictions, for later decisions and run monitoring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.measurement import Measurement
from shunter.hardware.cost.cost_model import predict
from shunter.hardware.cost.residual import Residual, StepObservation
from shunter.hardware.types import HardwareProfile, Placement, Prediction, Workload
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec
from shunter.planner.describe import describe
from shunter.tracking.evidence import Figures

# Arguments: architecture, placement, mean seconds of a step, and mean watts (None if not measured).
ObserveStep = Callable[[ModelSpec, Placement, float, float | None], StepObservation | None]


@dataclass(frozen=True)
class Expectation:
    """Prediction for one training run.

    Attributes:
        profile: Profile of the training's accelerator.
        prediction: Prediction of the training run's step, corrected by observations on the accelerator.
    """

    profile: HardwareProfile
    prediction: Prediction

    @property
    def figures(self) -> Figures:
        """Return the predicted step time and memory, in the form that the evidence record stores."""
        return Figures(
            step_seconds=self.prediction.step_seconds,
            step_seconds_source=self.prediction.step_seconds_source,
            memory_bytes=self.prediction.memory_bytes or None,
            memory_source=self.prediction.memory_source,
        )


LONGEST_KNOWN = timedelta(days=7)  # a measured step counts as current for this long
CLOCK_TOLERANCE = timedelta(minutes=5)  # steps further in the future have a wrong clock and would never expire


def probe_observations(
    found: Mapping[Placement, Measurement | None], workload: Workload, profiles: Sequence[HardwareProfile]
) -> list[StepObservation]:
    """Return observations of the probes that did not run out of memory, in order of measurement.

    Args:
        found: Measurements by placement.
        workload: Demand of the probed training.
        profiles: Profiles of the probed accelerators.
    """
    by_name = {profile.accelerator.name: profile for profile in profiles}
    return [
        _observation(
            workload,
            placement,
            by_name[placement.accelerator],
            measurement.step_seconds,
            measurement.mean_watts if measurement.watts_measured else None,
        ).model_copy(
            update={
                "steps": measurement.steps,
                "measured_interval": measurement.step_seconds_interval,
                "memory_bytes": measurement.memory_bytes,
            }
        )
        for placement, measurement in found.items()
        if measurement is not None
    ]


def observer(dataset: Dataset, profiles: Sequence[HardwareProfile]) -> ObserveStep:
    """Return a function from architecture, placement, mean step seconds and mean watts to a `StepObservation`.

    The function returns None for an accelerator without a profile.

    Args:
        dataset: Data of the training runs.
        profiles: Profiles of the accelerators of the training runs.
    """
    by_name = {profile.accelerator.name: profile for profile in profiles}

    def observe(
        spec: ModelSpec, placement: Placement, measured_seconds: float, measured_watts: float | None
    ) -> StepObservation | None:
        profile = by_name.get(placement.accelerator)
        if profile is None:
            return None
        return step_observation(dataset, spec, placement, profile, measured_seconds, measured_watts=measured_watts)

    return observe


def step_observation(
    dataset: Dataset,
    spec: ModelSpec | GraphSpec,
    placement: Placement,
    profile: HardwareProfile,
    measured_seconds: float,
    *,
    compiled: bool = False,
    measured_watts: float | None = None,
) -> StepObservation:
    """Return the observation of one training run's mean step.

    Args:
        dataset: Data of the training.
        spec: Architecture of the model.
        placement: Placement of the training.
        profile: Profile of the placement's accelerator.
        measured_seconds: Mean wall-clock seconds of a step, including the wait for its batch.
        compiled: Whether the step was compiled.
        measured_watts: Mean power during training; None if not measured.
    """
    observation = _observation(describe(dataset, spec), placement, profile, measured_seconds, measured_watts)
    return observation.model_copy(update={"compiled": compiled})


def expect(
    dataset: Dataset,
    spec: ModelSpec | GraphSpec,
    placement: Placement,
    profile: HardwareProfile,
    observations: Sequence[StepObservation],
) -> Expectation:
    """Return the prediction of an architecture at a placement, corrected by observations of other architectures.

    Args:
        dataset: Data of the training.
        spec: Architecture of the model.
        placement: Placement of the training.
        profile: Profile of the placement's accelerator.
        observations: Observations of steps on this machine.
    """
    workload = describe(dataset, spec)
    prediction = predict(workload, placement, profile)
    corrected = Residual.fit(observations).correct(workload, placement, prediction, profile.accelerator.model)
    return Expectation(profile, corrected)


def _observation(
    workload: Workload,
    placement: Placement,
    profile: HardwareProfile,
    measured_seconds: float,
    measured_watts: float | None,
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
        mean_watts=measured_watts,
    )


def measured_before(
    workload: Workload, observations: Sequence[StepObservation], profiles: Sequence[HardwareProfile], now: datetime
) -> dict[Placement, Measurement]:
    """Return past probes of the same workload on this machine's accelerators, by placement; they need no new probe.

    Args:
        workload: Demand of the training.
        observations: Steps of past runs, in order of time.
        profiles: Profiles of the accelerators of this machine.
        now: Time of the choice; measurements older than `LONGEST_KNOWN` are ignored.
    """
    names = {
        (profile.host, profile.machine, profile.accelerator.model): profile.accelerator.name for profile in profiles
    }
    plain = _plain(workload)
    found: dict[Placement, Measurement] = {}
    for step in observations:
        accelerator = names.get((step.host, step.machine, step.accelerator_model))
        is_same = accelerator == step.placement.accelerator and _plain(step.workload) == plain
        age = now - datetime.fromisoformat(step.measured_at)
        if (
            not is_same
            or step.steps is None
            or step.memory_bytes is None
            or not -CLOCK_TOLERANCE <= age < LONGEST_KNOWN
        ):
            continue
        found[step.placement] = Measurement(
            steps=step.steps,
            step_seconds=step.measured_seconds,
            memory_bytes=step.memory_bytes,
            mean_watts=step.mean_watts,
            watts_measured=step.mean_watts is not None,
            step_seconds_interval=step.measured_interval,
        )
    return found


def _plain(workload: Workload) -> tuple[float, ...]:
    """Return the demands of a step, rounded, without the number of rows, which differs between nightly runs."""
    numbers = (
        workload.matmul_flops_per_sample,
        workload.lookups_per_sample,
        workload.lookup_bytes_per_sample,
        workload.input_bytes_per_sample,
        float(workload.dense_parameter_bytes),
    )
    return tuple(float(f"{number:.3g}") for number in numbers)
