"""Optimisation passes that are tried on a training run before its first step, with a record for later attempts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.engine.config import Execution
from shunter.engine.executors.compilation import Compilation, time_steps_in_process
from shunter.engine.job import ClickJob
from shunter.engine.passes.record import PassRecord
from shunter.engine.passes.role import Tried, passes_of, try_in_turn
from shunter.engine.passes.training import TrainingSubject
from shunter.errors import CheckpointError
from shunter.frozen import Frozen

FILE = "passes.choice.json"
LARGEST_GAIN = 0.1  # largest expected gain, as a share of the step time
LEAST_SECONDS = 60.0  # shortest time of the trials; a training run that cannot save as much tries nothing


class TriedPasses(Frozen):
    """Execution settings that the tried passes selected for a training run.

    Attributes:
        rewriting: Rewriting steps that change how the layers are computed (`Execution.rewriting`).
        packs_activations: Whether activations are stored without their zeros.
        compacts_dead_units: Whether units that are zero for a whole batch are omitted from matrix products.
        records: Tried passes; empty if the training is too short to try any.
    """

    rewriting: tuple[str, ...] = ()
    packs_activations: bool = False
    compacts_dead_units: bool = False
    records: tuple[PassRecord, ...] = ()


def try_training_passes(job: ClickJob, compilation: Compilation, directory: Path, title: str) -> TriedPasses:
    """Try every optimisation pass on a training job, or read the result of an earlier attempt.

    Raises:
        CheckpointError: The file of an earlier attempt is damaged.
    """
    path = directory / FILE
    if path.exists():
        try:
            return TriedPasses.model_validate(read_json(path))
        except ValidationError as error:
            raise CheckpointError(
                f"The file {path} does not record which optimisation passes the training run used: use another "
                "checkpoint folder."
            ) from error
    seconds = compilation.compiled_step_seconds if compilation.compiled else compilation.eager_step_seconds
    if seconds is None or compilation.steps * seconds * LARGEST_GAIN <= LEAST_SECONDS:
        return TriedPasses()
    made, records = try_in_turn(passes_of("training"), Tried(TrainingSubject(job, time_steps_in_process), title))
    found = TriedPasses(**_settings(made.job.execution), records=records)
    write_json(path, found.model_dump_json(indent=1))
    return found


def with_passes(job: ClickJob, found: TriedPasses) -> ClickJob:
    """Return the job with the settings of the passes."""
    return replace(job, execution=replace(job.execution, **_settings(found)))


def _settings(one: Execution | TriedPasses) -> dict[str, Any]:
    """Return the execution settings that optimisation passes may change, by name."""
    return {name: getattr(one, name) for name in ("rewriting", "packs_activations", "compacts_dead_units")}
