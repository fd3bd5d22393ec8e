"""What past nights have left in MLflow, and what this one leaves: why, in words and figures."""

from collections.abc import Sequence
from datetime import date
from typing import Literal

from shunter.frozen import Frozen
from shunter.retraining.findings import Finding
from shunter.retraining.plan import NightPlan
from shunter.tracking.history import TrackedRun, read_runs
from shunter.tracking.registry.judgement import Judgement
from shunter.tracking.registry.ranker_comparison import RankingJudgement
from shunter.tracking.reports import log_config
from shunter.tracking.runs import open_run

Outcome = Literal["first champion", "not promoted", "promoted", "kept", "rolled back", "nothing new", "already judged"]


class Night(Frozen):
    """How a night ended.

    Attributes:
        outcome: Outcome in short.
        day: Day judged on.
        reason: Why, in one sentence.
        findings: Everything unusual about the days.
        judgement: Champion against challenger; None where nothing was compared.
        champion: Version in use from now on; None where there is none.
        registered: Version that came of this night; None where none did.
        run_id: Its MLflow run.
    """

    outcome: Outcome
    day: date
    reason: str
    findings: tuple[Finding, ...] = ()
    judgement: Judgement | RankingJudgement | None = None
    champion: int | None
    registered: int | None = None
    run_id: str

    @property
    def is_degraded(self) -> bool:
        """Return True if a champion stays in use that is degraded on the judged day."""
        return self.outcome == "kept" and any(finding.kind == "degraded" for finding in self.findings)


def nights_of(name: str) -> list[TrackedRun]:
    """The finished nights of a registered model, newest first.

    Raises:
        TrackingError: The store cannot be read.
    """
    return [
        run
        for run in read_runs(("nightly",))
        if run.tags.get("nightly.model") == name and run.status == "FINISHED" and "nightly.outcome" in run.tags
    ]


def judged(nights: Sequence[TrackedRun], day: date) -> TrackedRun | None:
    """The night that judged on a day, None where none did."""
    return next((run for run in nights if run.tags.get("nightly.day") == day.isoformat()), None)


def judged_later(nights: Sequence[TrackedRun], day: date) -> date | None:
    """The latest day after the given one that a night has judged on, as happens when a clock is set back; else None."""
    days = [date.fromisoformat(run.tags["nightly.day"]) for run in nights if "nightly.day" in run.tags]
    return max((later for later in days if later > day), default=None)


def missing_days(nights: Sequence[TrackedRun]) -> set[date]:
    """Days that the last night missed."""
    text = nights[0].tags.get("nightly.missing_days", "") if nights else ""
    return {date.fromisoformat(day) for day in text.split(",") if day}


def log_plan(run_id: str, name: str, plan: NightPlan, learned: Sequence[date]) -> None:
    """Keep what the night is about.

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


def log_judgement(run_id: str, name: str, judgement: Judgement | RankingJudgement) -> None:
    """Keep the figures of a comparison.

    Args:
        run_id: MLflow run of the night.
        name: `judgement`, or `last-day` of what the judged day itself was learned for.
        judgement: The comparison.

    Raises:
        TrackingError: The store fails.
    """
    prefix = "nightly" if name == "judgement" else f"nightly.{name}"
    open_run(run_id).log_metrics({f"{prefix}.{figure}": value for figure, value in judgement.figures().items()})
    log_config(run_id, name, judgement)


def log_night(night: Night) -> None:
    """Keep the outcome: the last write of a night, which says that its day is judged.

    Raises:
        TrackingError: The store fails.
    """
    run = open_run(night.run_id)
    log_config(night.run_id, "night", night)
    run.log_metrics({"nightly.findings": len(night.findings)})
    run.set_tags(
        {
            "nightly.reason": night.reason,
            "nightly.champion": str(night.champion),
            "nightly.outcome": night.outcome,
        }
    )
