"""Members that a trial of the search has already trained: the model is copied and logged as a run of its own."""

import shutil
from contextlib import suppress
from pathlib import Path

from shunter.engine.checkpoint.checked_files import MODEL_FILES
from shunter.engine.ensemble.scored import take_scores
from shunter.engine.job import ClickJob
from shunter.engine.trained_model import TrainedModel, read_finished
from shunter.errors import CheckpointError
from shunter.tasks.train.kinds import kind_of
from shunter.tasks.train.member import log_result
from shunter.tracking.convention import TRIAL_OF_MEMBER, placement_params
from shunter.tracking.runs import child_run


def adopt_trial(
    found: Path | None, job: ClickJob, directory: Path, *, name: str, parent_run_id: str | None
) -> TrainedModel | None:
    """Return the finished training run of a trial as a member; None if there is none or it is of another training run.

    The same settings, data, seed and schedule give the same weights, so nothing is trained again.

    Args:
        found: Folder of the trial's model; None if no model was stored.
        job: Training job of the member.
        directory: Folder of the member; a finished member is returned unchanged.
        name: Name of the member's run.
        parent_run_id: MLflow run under which it is logged; None logs nothing.

    Raises:
        CheckpointError: The folder of the member holds another training run.
        TrackingError: The store fails.
    """
    finished = read_finished(TrainedModel, directory, job)
    if finished is not None or found is None:
        return finished
    with suppress(CheckpointError):
        trained = read_finished(TrainedModel, found, job)
        if trained is not None:
            return _taken_over(trained, job, directory, name, parent_run_id)
    return None


def _taken_over(
    trained: TrainedModel, job: ClickJob, directory: Path, name: str, parent_run_id: str | None
) -> TrainedModel:
    directory.mkdir(parents=True, exist_ok=True)
    for file in MODEL_FILES:
        shutil.copyfile(trained.directory / file, directory / file)
    take_scores(trained.directory, directory, job.dataset, "validation", job.execution)
    member = trained.model_copy(update={"directory": directory, "name": name, "run_id": None})
    if parent_run_id is not None:
        with child_run(parent_run_id, name, "member") as run:
            kind = kind_of(job)
            run.log_params({**kind.params(), **placement_params(trained.placement)})
            run.set_tags({TRIAL_OF_MEMBER: trained.name})
            for report in trained.history:
                run.log_metrics(kind.epoch_metrics(report), step=report.epoch)
            log_result(run, member, kind)
            member = member.model_copy(update={"run_id": run.run_id})
    member.save()
    shutil.rmtree(trained.directory)
    return member
