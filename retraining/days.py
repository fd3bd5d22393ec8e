"""Choice of the training days and the evaluation day of a nightly run."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from shunter.ingestion.sources.addresses import copy_objects
from shunter.ingestion.sources.days import DayLog
from shunter.retraining.day_files import find_days
from shunter.retraining.inspection import inspect_days
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.plan import NightlyPlan, plan_nightly_run, window


def choose_days(
    request: NightlyRequest, newest: date, figures_folder: Path, missing_before: Sequence[date] = ()
) -> tuple[NightlyPlan, dict[date, DayLog]]:
    """Find and inspect the days, and choose the training days and the evaluation day.

    Args:
        request: Request of the nightly run.
        newest: Newest day that may be evaluated.
        figures_folder: Folder of stored statistics of days.
        missing_before: Days that were missing in the last nightly run.

    Raises:
        RequestError: The pattern of the days is wrong.
        DataError: There is no evaluation day, or no training day.
    """
    found = find_days(request.data)
    days, early = window(found.days, request, newest)
    copy_objects(path for day in days for path in found.days[day])
    inspected = inspect_days({day: found.days[day] for day in days}, request, figures_folder)
    if found.undated:
        text = f"{len(found.undated)} files bear no date and were passed over, such as {found.undated[0]}."
        inspected.report(None, "undated", text)
    plan = plan_nightly_run(
        inspected.figures, [*early, *inspected.findings], request, newest, missing_before=set(missing_before)
    )
    return plan, inspected.logs
