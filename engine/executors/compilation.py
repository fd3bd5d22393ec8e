"""Choice whether to compile a training run: measured before its first step, and kept for later attempts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.engine.job import ClickJob
from shunter.engine.loop.compile import may_pay, pays
from shunter.engine.probes.steps import time_steps
from shunter.engine.results import StepTiming
from shunter.errors import CheckpointError, HardwareError
from shunter.frozen import Frozen
from shunter.model_families import MODEL_FAMILIES

FILE = "compilation.choice.json"
FEWEST_STEPS = 1_000  # shorter training runs are not measured at all
PROBE_STEPS = 30


class Compilation(Frozen):
    """Choice whether to compile, with the reason and the measurements; values that were not measured are None.

    Attributes:
        compiled: Whether to compile.
        reason: Reason, for the user.
        steps: Steps of the longest training that the schedule allows.
        eager_step_seconds: Measured median of uncompiled steps.
        compiled_step_seconds: Measured median of compiled steps.
        compile_seconds: Measured duration of compiling; for the training itself most of the result is cached.
    """

    compiled: bool
    reason: str
    steps: int
    eager_step_seconds: float | None = None
    compiled_step_seconds: float | None = None
    compile_seconds: float | None = None

    def unmeasured(self) -> "Compilation":
        """Return the choice without measurements, for use on another machine."""
        return self.model_copy(update={"eager_step_seconds": None, "compiled_step_seconds": None})


def time_steps_in_process(job: ClickJob) -> StepTiming:
    """Measure some steps of a training run in this process."""
    return time_steps(job.dataset, job.spec, job.hyperparameters, job.execution, steps=PROBE_STEPS)


@dataclass(frozen=True)
class Trial:
    """Method of measuring the steps of a training run on the device that will train it.

    Attributes:
        measure: Runs some steps of a training run, compiled if its execution settings request it; raises HardwareError
            on failure.
        fewest_steps: Training runs with fewer steps are not measured.
        seconds: Overhead of a measurement beyond compiling and steps; the gain must exceed it.
    """

    measure: Callable[[ClickJob], StepTiming] = time_steps_in_process
    fewest_steps: int = FEWEST_STEPS
    seconds: float = 0.0


def choose_compilation(
    job: ClickJob,
    *,
    directory: Path,
    eager_because: str | None = None,
    trial: Trial = Trial(),
) -> Compilation:
    """Choose whether to compile, or read the choice of an earlier attempt, so that a resumed run computes the same.

    Args:
        job: The training.
        directory: Folder of the checkpoints, created if absent; the choice is deleted with them after the training.
        eager_because: Reason not to compile, independent of measurements; None if compiling is possible.
        trial: Method of measuring steps.

    Raises:
        CheckpointError: The file of the earlier choice is damaged.
    """
    path = directory / FILE
    if path.exists():
        try:
            return Compilation.model_validate(read_json(path))
        except ValidationError as error:
            raise CheckpointError(
                f"The file {path} does not record whether the training run was compiled: use another checkpoint folder."
            ) from error
    steps = job.hyperparameters.most_epochs(job.schedule) * math.ceil(
        job.dataset.splits["train"].rows / job.execution.batch_size
    )
    if eager_because is not None:
        choice = Compilation(compiled=False, reason=eager_because, steps=steps)
    else:
        choice = _measured(job, steps, trial)
    directory.mkdir(parents=True, exist_ok=True)
    write_json(path, choice.model_dump_json(indent=1))
    return choice


def _measured(job: ClickJob, steps: int, trial: Trial) -> Compilation:
    eager = None

    def rejected(reason: str) -> Compilation:
        return Compilation(compiled=False, reason=reason, steps=steps, eager_step_seconds=eager)

    if steps < trial.fewest_steps:
        return rejected(f"{steps} steps are too few")
    if MODEL_FAMILIES.capability(job.spec.family, "compiles_slowly"):
        return rejected("recurrent steps take too long to compile one by one")
    try:
        eager = trial.measure(job).step_seconds
        if not may_pay(steps, eager, trial.seconds):
            return rejected(f"{steps} steps of {1e3 * eager:.1f} ms are too short for compiling to pay off")
        timing = trial.measure(replace(job, execution=replace(job.execution, compiled=True)))
    except HardwareError as error:
        return rejected(f"its steps could not be measured ({error})")
    if timing.compile_seconds is None:
        return rejected("no compiler works on this machine")
    eager = timing.eager_step_seconds or eager  # measured at the same time, if both were measured together
    compiled = timing.step_seconds
    gain = f"{1e3 * eager:.1f} ms a step become {1e3 * compiled:.1f} ms, over {steps} steps"
    does_pay = pays(steps, eager, compiled, timing.compile_seconds)
    return Compilation(
        compiled=does_pay,
        reason=f"{gain}, {'more' if does_pay else 'no more'} than the {timing.compile_seconds:.0f} s of compiling",
        steps=steps,
        eager_step_seconds=eager,
        compiled_step_seconds=compiled,
        compile_seconds=timing.compile_seconds,
    )
