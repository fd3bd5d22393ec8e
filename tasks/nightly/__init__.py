"""Step `nightly`: the newest day judges, the days before it teach, and a challenger must earn the champion's place."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from engine.dataset import Dataset
from engine.warm_start import WarmStart
from shunter.settings import Settings
from tasks.ingest import DayLog, DaysSource, Encoder, ingest_source
from tasks.nightly.bootstrap import Judgement
from tasks.nightly.challenge import compare, kept_back
from tasks.nightly.champion import Champion, Origin, choose_origin, open_champion, slowed, version_tags
from tasks.nightly.find import find_days
from tasks.nightly.findings import Finding
from tasks.nightly.look import look_at
from tasks.nightly.match import shared_rows
from tasks.nightly.nights import (
    Night,
    Outcome,
    judged,
    judged_later,
    log_judgement,
    log_night,
    log_plan,
    missing_days,
    nights_of,
)
from tasks.nightly.plan import NightPlan, plan_night, window, yesterday
from tasks.nightly_request import NightlyRequest
from tasks.track import ModelFiles

__all__ = [
    "Champion",
    "Finding",
    "Judgement",
    "Night",
    "NightPlan",
    "Origin",
    "Outcome",
    "choose_origin",
    "find_days",
    "ingest_days",
    "judge_challenger",
    "judged",
    "judged_later",
    "kept_back",
    "log_judgement",
    "log_night",
    "log_plan",
    "look",
    "look_for_days",
    "missing_days",
    "nights_of",
    "open_champion",
    "slowed",
    "version_tags",
    "warm_start_from",
    "yesterday",
]


@task(name="look for days", cache_policy=NO_CACHE)
def look_for_days(
    request: NightlyRequest, newest: date, kept: Path, missing_before: Sequence[date]
) -> tuple[NightPlan, dict[date, DayLog]]:
    """Find the days, look at each once, and choose which to learn and which to judge on; what is unusual is told."""
    plan, logs = look(request, newest, kept, missing_before)
    logger = get_run_logger()
    for finding in plan.findings:
        logger.warning(finding.words)
    return plan, logs


def look(
    request: NightlyRequest, newest: date, kept: Path, missing_before: Sequence[date] = ()
) -> tuple[NightPlan, dict[date, DayLog]]:
    """Do the work of `look_for_days`.

    Raises:
        RequestError: the pattern of the days is wrong.
        DataError: there is no day to judge on, or none to learn from.
    """
    found = find_days(request.data)
    days, early = window(found.days, request, newest)
    looked = look_at({day: found.days[day] for day in days}, request, kept)
    if found.undated:
        words = f"{len(found.undated)} files bear no date and were passed over, such as {found.undated[0]}."
        looked.say(None, "undated", words)
    plan = plan_night(looked.figures, [*early, *looked.findings], request, newest, missing_before=set(missing_before))
    return plan, looked.logs


@task(name="ingest days", cache_policy=NO_CACHE)
def ingest_days(
    request: NightlyRequest, logs: Sequence[DayLog], *, held_out: date | None, base: ModelFiles | None
) -> Dataset:
    """Ingest the days of one training; values that the model in `base` knows stay known."""
    encoder = None if base is None else Encoder.load(base.encoder)
    source = DaysSource(request.register_as, tuple(logs), held_out=held_out, base=encoder)
    dataset, report = ingest_source(source, Settings().cache_directory, request.seed, request.max_bad_share)
    get_run_logger().info("Ingested %s rows of %s day(s)", f"{report.rows:,}", len(logs))
    return dataset


def warm_start_from(files: ModelFiles, member: int, dataset: Dataset) -> WarmStart:
    """Start from a model whose ids may stand for other values.

    Raises:
        DataError: an encoder cannot be read.
    """
    now, former = Encoder.load(dataset.directory / "encoder"), Encoder.load(files.encoder)
    return WarmStart(files.model, shared_rows(now, former), member)


@task(name="judge", cache_policy=NO_CACHE)
def judge_challenger(
    request: NightlyRequest,
    log: DayLog,
    champion: ModelFiles,
    challenger: ModelFiles,
    picture: Path,
    *,
    only_kept_back: bool = False,
) -> Judgement:
    """Score the same rows with both, compare them, and draw the comparison."""
    judgement = compare(request, log, champion, challenger, picture, only_kept_back=only_kept_back)
    get_run_logger().info(judgement.words)
    return judgement
