"""Prefect tasks of the nightly flow: choose and ingest days, and compare a challenger with the champion."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from shunter.engine.config import Repeats
from shunter.engine.data.dataset import Dataset
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources.days import DayLog, DaysSource
from shunter.reporting.page.publish import PAGE, build_report
from shunter.retraining.comparison import compare, number_of
from shunter.retraining.inspection import choose_days as chosen_days
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.plan import NightlyPlan
from shunter.retraining.trend import build_trend, trend_table
from shunter.settings import Settings
from shunter.tasks.ingest import ingest_progress
from shunter.tasks.recipes import check_label
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.ranker_comparison import RankingComparison, compare_rankers
from shunter.tracking.registry.versions import ModelFiles
from shunter.tracking.reports import log_files

__all__ = ["choose_days", "evaluate_challenger", "evaluate_ranking_challenger", "ingest_days", "publish_pages"]


@task(name="choose days", cache_policy=NO_CACHE)
def choose_days(
    request: NightlyRequest, newest: date, figures_folder: Path, missing_before: Sequence[date]
) -> tuple[NightlyPlan, dict[date, DayLog]]:
    """Find and inspect the days, choose the training days and the evaluation day, and log findings as warnings."""
    plan, logs = chosen_days(request, newest, figures_folder, missing_before)
    logger = get_run_logger()
    for finding in plan.findings:
        logger.warning(finding.words)
    return plan, logs


@task(name="publish pages", cache_policy=NO_CACHE)
def publish_pages(run_id: str, model: str) -> str:
    """Log the report page of the nightly run and the page of all nightly runs; an error is logged, not raised.

    Returns:
        Table of the newest nightly runs in Markdown; empty after an error.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            report, trend = Path(folder) / PAGE, Path(folder) / "trend.html"
            report.write_text(build_report(run_id), encoding="utf-8")
            trend.write_text(build_trend(model), encoding="utf-8")
            log_files(run_id, [report, trend])
            return trend_table(model)
    except Exception as error:  # a missing page must not fail the flow: the champion is already chosen
        get_run_logger().warning(
            "No report page of the nightly run (%s: %s)", type(error).__name__, error, exc_info=True
        )
        return ""


@task(name="ingest days", cache_policy=NO_CACHE)
def ingest_days(
    request: NightlyRequest, logs: Sequence[DayLog], *, held_out: date | None, base: ModelFiles | None
) -> Dataset:
    """Ingest the days of one training run; the vocabulary keeps all values that the model in `base` knows."""
    encoder = None if base is None else Encoder.load(base.encoder)
    if encoder is not None and request.days.relearn:  # otherwise rows of these days would be counted twice
        encoder.statistics = tuple(replace(one, counts=None) for one in encoder.statistics)
    days_read = tuple(logs) if encoder is None else tuple(log.as_read_by(encoder) for log in logs)
    number = None if base is None else number_of(base)
    source = DaysSource(request.registered_name, days_read, held_out=held_out, base=encoder, number=number)
    with ingest_progress() as on_progress:
        dataset, report = ingest_source(
            source,
            Settings().cache_directory,
            request.seed,
            request.source.max_bad_share,
            on_progress=on_progress,
        )
    get_run_logger().info("Ingested %s rows of %s day(s)", f"{report.rows:,}", len(logs))
    check_label(request, dataset)
    return dataset


@task(name="judge", cache_policy=NO_CACHE)
def evaluate_challenger(
    request: NightlyRequest,
    log: DayLog,
    champion: ModelFiles,
    challenger: ModelFiles,
    gains: Path,
    *,
    only_test_part: bool = False,
) -> ChampionComparison:
    """Compare the losses of champion and challenger on the rows of a day.

    The mean gains of all bootstrap resamples are written to the file `gains`. With `only_test_part`, only those rows
    are scored that a training run on this day holds out as its test part.
    """
    comparison, savings = compare(request, log, champion, challenger, only_test_part=only_test_part)
    np.save(gains, savings)
    get_run_logger().info(comparison.explain())
    return comparison


@task(name="judge", cache_policy=NO_CACHE)
def evaluate_ranking_challenger(
    request: NightlyRequest,
    dataset: Dataset,
    champion: ModelFiles,
    challenger: Path,
    gains: Path,
    *,
    repeats: Repeats = "drop",
) -> RankingComparison:
    """Compare the rankings of both models for the users of a day, and write the bootstrap gains to `gains`."""
    asked = request.promotion
    comparison, resampled = compare_rankers(
        dataset,
        champion,
        challenger,
        margin=asked.margin,
        confidence=asked.promotion_confidence,
        seed=request.seed,
        repeats=repeats,
    )
    np.save(gains, resampled)
    get_run_logger().info(comparison.explain())
    return comparison
