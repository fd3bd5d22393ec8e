"""Record of a training run, stored with its run however the training ends; later predictions use it."""

from contextlib import suppress
from typing import Any

from shunter.engine.executors.energy import EnergyRecord
from shunter.engine.job import TrainingJob
from shunter.errors import TrackingError
from shunter.hardware.types import Placement
from shunter.planner.predict.observe import Expectation, step_observation
from shunter.tracking.evidence import Ending, Evidence, Figures, ending_of, log_evidence
from shunter.tracking.learning import log_steps
from shunter.tracking.runs import Run
from shunter.tracking.training_evidence import Progress, mean_step_seconds, training_evidence


class TrainingRecord:
    """Training record that is updated while the training job runs."""

    def __init__(
        self,
        job: TrainingJob[Any, Any, Any],
        placement: Placement,
        energy: EnergyRecord,
        expected: Expectation | None,
        *,
        compiled: bool,
    ) -> None:
        self._progress: Progress | None = None
        self._job, self._placement, self._energy = job, placement, energy
        self._expected, self._compiled = expected, compiled

    def save(self, report: Progress) -> None:
        """Record the progress, and save the energy for a later attempt."""
        self._progress = report
        self._energy.save()

    def log(self, run: Run, trained: Any, *, learns_steps: bool) -> None:
        """Log the record of a finished training run, and the time of its steps.

        Args:
            run: Run of the training.
            trained: Result of the training.
            learns_steps: Whether all steps ran at the placement, so that later predictions can use their time.
        """
        self._progress = trained
        log_evidence(run.run_id, self._evidence(ending_of(reason=trained.stop_reason)))
        seconds = mean_step_seconds(trained, self._placement)
        if self._expected is None or seconds is None or not learns_steps:
            return
        energy = self._energy.reading()
        observed = step_observation(
            self._job.dataset,
            self._job.spec,
            self._placement,
            self._expected.profile,
            seconds,
            compiled=self._compiled,
            measured_watts=energy.mean_watts if energy.teaches_power else None,
        )
        log_steps(run.run_id, [observed])

    def log_failure(self, run: Run | None, error: BaseException) -> None:
        """Log the record of a training run that an error ended; errors of the store are ignored."""
        if run is not None:
            with suppress(TrackingError):
                log_evidence(run.run_id, self._evidence(ending_of(error=error)))

    def _evidence(self, ending: Ending) -> Evidence:
        return training_evidence(
            "member",
            ending,
            self._job,
            self._placement,
            progress=self._progress,
            energy=self._energy.reading(),
            expected=self._expected.figures if self._expected else Figures(),
            compiled=self._compiled,
        )
