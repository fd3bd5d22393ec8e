"""Choice of the evaluation day and the training days, by rules on the statistics of the days."""

from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta
from statistics import median
from zoneinfo import ZoneInfo

from shunter.errors import DataError
from shunter.frozen import Frozen
from shunter.retraining.figures import DayFigures
from shunter.retraining.findings import Finding, base_rate_finding, drift_findings
from shunter.retraining.nightly_request import NightlyRequest


class NightlyPlan(Frozen):
    """Plan of one nightly run."""

    held_out: date
    training: tuple[date, ...]
    missing: tuple[date, ...]
    findings: tuple[Finding, ...]


def yesterday(now: datetime, zone: ZoneInfo) -> date:
    """Return the last complete day in a time zone."""
    return now.astimezone(zone).date() - timedelta(days=1)


def window(days: Collection[date], request: NightlyRequest, newest: date) -> tuple[list[date], list[Finding]]:
    """Return the days to inspect, ascending, and a finding for each day that is not complete yet."""
    oldest = newest - timedelta(days=request.days.train_days + (0 if request.days.day else request.days.max_late_days))
    early = [
        Finding(day=day, kind="not over", words=f"{day} is not over in {request.days.timezone} and is left for later.")
        for day in sorted(days)
        if day > newest and request.days.day is None
    ]
    return sorted(day for day in days if oldest <= day <= newest), early


def plan_nightly_run(
    figures: Mapping[date, DayFigures],
    found: Collection[Finding],
    request: NightlyRequest,
    newest: date,
    *,
    missing_before: Collection[date] = (),
) -> NightlyPlan:
    """Choose the training days and the evaluation day.

    Raises:
        DataError: No day is suitable for evaluation, the newest day is too old, or there is no earlier training day.
    """
    findings = list(found)
    usable = _without_broken_labels(figures, request, findings)
    finished = _without_unfinished(usable, request, findings)
    if not finished or (request.days.day is not None and request.days.day not in finished):
        raise DataError(_no_day(request, newest, findings))
    held_out = max(finished)
    late_days = (newest - held_out).days
    if late_days > request.days.max_late_days:
        raise DataError(
            f"The newest usable day of {request.data} is {held_out}, {late_days} days before {newest}: "
            "check the program that writes the log, or name a day with --day."
        )
    first = held_out - timedelta(days=request.days.train_days)
    training = tuple(day for day in sorted(usable) if first <= day < held_out)
    if not training:
        raise DataError(
            f"None of the {request.days.train_days} days before {held_out} can be used for training: give "
            "more days, or raise --train-days."
        )
    span = (training[0] + timedelta(days=number) for number in range((newest - training[0]).days + 1))
    missing = tuple(day for day in span if day not in usable)
    findings += _absences(missing, {finding.day for finding in findings}, newest, held_out)
    findings += [
        Finding(day=day, kind="late", words=f"{day} came late: it was missing last time and is used from now on.")
        for day in training
        if day in missing_before
    ]
    told = {finding.column for finding in findings if finding.day == held_out}
    drift = drift_findings(usable[held_out], [usable[day] for day in training], request.drift)
    findings += [finding for finding in drift if finding.column is None or finding.column not in told]
    findings.sort(key=lambda finding: finding.day or date.min)
    return NightlyPlan(held_out=held_out, training=training, missing=missing, findings=tuple(findings))


def _without_broken_labels(
    figures: Mapping[date, DayFigures], request: NightlyRequest, findings: list[Finding]
) -> dict[date, DayFigures]:
    """Return the days with a base rate similar to the median day's; the other days are quarantined."""
    usual = median(day_figures.base_rate for day_figures in figures.values()) if figures else 0.0
    usable = {}
    for day, day_figures in figures.items():
        finding = base_rate_finding(day_figures, usual, request.drift)
        if finding is None:
            usable[day] = day_figures
        else:
            findings.append(finding)
    return usable


def _without_unfinished(
    usable: Mapping[date, DayFigures], request: NightlyRequest, findings: list[Finding]
) -> dict[date, DayFigures]:
    """Return the days suitable for evaluation, without the newest days that have too few rows to be complete."""
    if not usable:
        return {}
    usual = median(day_figures.rows for day_figures in usable.values())
    finished = dict(usable)
    while len(finished) > 1:
        newest = finished[max(finished)]
        if newest.rows >= request.drift.min_rows_share * usual:
            break
        sentence = (
            f"{newest.day} has {newest.rows:,} rows, the median day {usual:,.0f}: it is taken for unfinished and "
            "not used for evaluation."
        )
        findings.append(Finding(day=newest.day, kind="unfinished", words=sentence))
        del finished[newest.day]
    return finished


def _no_day(request: NightlyRequest, newest: date, findings: Collection[Finding]) -> str:
    wanted = request.days.day or newest
    reason = next((finding.words for finding in findings if finding.day == wanted), f"there is no file of {wanted}")
    what = (
        f"{wanted} cannot be used for evaluation"
        if request.days.day
        else f"No day of {request.data} up to {newest} can be used"
    )
    return f"{what} ({reason.rstrip('.')}): fix the log, or name another day with --day."


def _absences(
    missing: Collection[date], reported: Collection[date | None], newest: date, held_out: date
) -> list[Finding]:
    """Return a finding for each missing day that is not in `reported`, the days with other findings."""
    consequences = {
        True: f"is missing, so models are evaluated on {held_out} instead; it is used when it arrives.",
        False: "is missing and is used when it arrives.",
    }
    return [
        Finding(day=day, kind="missing", words=f"{day} {consequences[day > held_out]}")
        for day in missing
        if day not in reported
    ]
