"""Which days a night learns, and which one judges."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from ingestion.sources.days import DayLog
from retraining.find import find_days
from retraining.inspect_days import look_at
from retraining.plan import NightPlan, plan_night, window
from shunter.requests.nightly import NightlyRequest


def look(
    request: NightlyRequest, newest: date, kept: Path, missing_before: Sequence[date] = ()
) -> tuple[NightPlan, dict[date, DayLog]]:
    """Find the days, look at each once, and choose which to learn and which to judge on.

    Raises:
        RequestError: The pattern of the days is wrong.
        DataError: There is no day to judge on, or none to learn from.
    """
    found = find_days(request.data)
    days, early = window(found.days, request, newest)
    looked = look_at({day: found.days[day] for day in days}, request, kept)
    if found.undated:
        words = f"{len(found.undated)} files bear no date and were passed over, such as {found.undated[0]}."
        looked.say(None, "undated", words)
    plan = plan_night(looked.figures, [*early, *looked.findings], request, newest, missing_before=set(missing_before))
    return plan, looked.logs
