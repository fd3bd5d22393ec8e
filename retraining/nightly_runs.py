"""Reading and logging of nightly runs in MLflow."""

import logging
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from shunter.errors import ShunterError
from shunter.frozen import Frozen
from shunter.retraining.findings import Finding
from shunter.retraining.nightly_request import FORMER_NAME, NightlyRequest, model_name_of
from shunter.retraining.plan import NightlyPlan
from shunter.tracking.history import TrackedRun, read_runs
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.ranker_comparison import RankingComparison
from shunter.tracking.reports import log_config, log_files
from shunter.tracking.runs import open_run

INCREMENT = "increment"  # folder of the increment in the artifacts of a run
Outcome = Literal["first champion", "not promoted", "promoted", "kept", "rolled back", "nothing new", "already judged"]


class NightlyResult(Frozen):
    """Result of a nightly run.

    Attributes:
        outcome: Kind of the outcome.
        day: Evaluation day.
        reason: Reason of the outcome, in one sentence.
        findings: Findings about the days.
        judgement: Comparison of champion and challenger; None without a comparison.
        champion: Version in use from now on; None if no version is in use.
        registered: Version that this nightly run registered; None if it registered no version.
        run_id: Id of the MLflow run.
    """

    outcome: Outcome
    day: date
    reason: str
    findings: tuple[Finding, ...] = ()
    judgement: ChampionComparison | RankingComparison | None = None
    champion: int | None
    registered: int | None = None
    run_id: str

    @property
    def keeps_champion(self) -> bool:
        """Return True if the champion was evaluated and stays in use."""
        return self.outcome in {"kept", "nothing new"}

    @property
    def is_degraded(self) -> bool:
        """Return True if the champion stays in use although it is degraded on the evaluation day."""
        return self.keeps_champion and any(finding.kind == "degraded" for finding in self.findings)


def nightly_runs_of(name: str) -> list[TrackedRun]:
    """Return the finished nightly runs of a registered model, newest first.

    Raises:
        TrackingError: The store cannot be read.
    """
    return [
        run
        for run in read_runs(("nightly",))
        if run.tags.get("nightly.model") == name and run.status == "FINISHED" and "nightly.outcome" in run.tags
    ]


def with_former_name(request: NightlyRequest) -> NightlyRequest:
    """Return the request with a model name: the name of the data, or `shunter` if past runs used that model name.

    Raises:
        TrackingError: The store cannot be read.
    """
    name = request.registered_name
    if request.register_as is None and any(
        model_name_of(run.params.get("request.data", "")) in {name, model_name_of(str(Path(request.data).absolute()))}
        for run in nightly_runs_of(FORMER_NAME)
    ):
        name = FORMER_NAME
    return request.model_copy(update={"register_as": name})


def log_plan(run_id: str, name: str, plan: NightlyPlan, learned: Sequence[date]) -> None:
    """Log the plan of a nightly run.

    Raises:
        TrackingError: The store fails.
    """
    open_run(run_id).set_tags(
        {
            "nightly.model": name,
            "nightly.day": plan.held_out.isoformat(),
            "nightly.training_days": ",".join(day.isoformat() for day in learned),
            "nightly.missing_days": ",".join(day.isoformat() for day in plan.missing),
        }
    )
    log_config(run_id, "plan", plan)


def log_comparison(run_id: str, name: str, comparison: ChampionComparison | RankingComparison) -> None:
    """Log the comparison of champion and challenger as metrics.

    Args:
        run_id: MLflow run of the nightly run.
        name: `judgement`, or `last-day` for the comparison after training on the evaluation day.
        comparison: Comparison of both models on the evaluation day.

    Raises:
        TrackingError: The store fails.
    """
    prefix = "nightly" if name == "judgement" else f"nightly.{name}"
    open_run(run_id).log_figures(name, {f"{prefix}.{figure}": value for figure, value in comparison.figures().items()})
    if name == "judgement" and isinstance(comparison, ChampionComparison):
        open_run(run_id).log_metrics(comparison.headline())
    log_config(run_id, name, comparison)


def log_nightly_result(night: NightlyResult) -> None:
    """Log the result of a nightly run; as the last write of the run, it marks the day as evaluated.

    Raises:
        TrackingError: The store fails.
    """
    run = open_run(night.run_id)
    log_config(night.run_id, "night", night)
    run.log_figures("night", {"nightly.findings": len(night.findings)})
    run.set_tags(
        {
            "nightly.reason": night.reason,
            "nightly.champion": str(night.champion),
            "nightly.outcome": night.outcome,
        }
    )


def store_increment(run_id: str, name: str, version: int, since: int) -> None:
    """Store the increment to a new version in a run's artifacts, if it is smaller than the whole version.

    The registry still stores each version whole, so a rollback or the removal of an old version breaks no chain of
    increments. An error is only logged. Without the extension for increments nothing is stored.
    """
    from shunter.tracking.registry.named import INCREMENTS, export_increment

    if not INCREMENTS.names:
        return
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, INCREMENT)
            done = export_increment(f"{name}/{version}", folder, since=f"{name}/{since}")
            run, described = open_run(run_id), done.described
            changed = described.changed_rows / described.rows if described.rows else 0.0
            ratio = done.size / done.whole
            run.log_metrics({"increment.bytes": done.size, "increment.ratio": ratio, "increment.changed_rows": changed})
            if ratio < 1:
                run.set_tags({"increment.since": described.since})
                for path in sorted(folder.rglob("*")):
                    if path.is_file():
                        log_files(run_id, [path], (Path(INCREMENT) / path.relative_to(folder).parent).as_posix())
    except (ShunterError, OSError) as error:
        logging.getLogger(__name__).warning("The increment to version %d is not stored: %s", version, error)
