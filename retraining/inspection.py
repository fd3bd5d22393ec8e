"""Inspection and choice of days: open the files of each day, drop duplicate files, and compute statistics."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TypeVar

from shunter.errors import DataError
from shunter.ingestion.cache import file_hashes
from shunter.ingestion.encoding.columns import holder_of
from shunter.ingestion.sources.addresses import copy_objects
from shunter.ingestion.sources.days import DayLog, open_day
from shunter.ingestion.sources.header import Kind, column_kinds, unreadable_share
from shunter.retraining.day_files import find_days
from shunter.retraining.figures import DayFigures, figures_of
from shunter.retraining.findings import Finding, FindingKind
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.plan import NightlyPlan, plan_nightly_run, window
from shunter.settings import Settings

Found = TypeVar("Found")


@dataclass
class InspectedDays:
    """Readable days."""

    logs: dict[date, DayLog] = field(default_factory=dict)
    figures: dict[date, DayFigures] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def report(self, day: date | None, kind: FindingKind, words: str, column: str | None = None) -> None:
        """Add a finding about a day."""
        self.findings.append(Finding(day=day, kind=kind, words=words, column=column))


def choose_days(
    request: NightlyRequest, newest: date, figures_folder: Path, missing_before: Sequence[date] = ()
) -> tuple[NightlyPlan, dict[date, DayLog]]:
    """Find and inspect the days, and choose the training days and the evaluation day.

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


def inspect_days(days: Mapping[date, Sequence[Path]], request: NightlyRequest, figures_folder: Path) -> InspectedDays:
    """Open days and compute their statistics; a day that cannot be used is excluded, with a finding.

    Raises:
        DataError: The schema is missing or wrong.
    """
    inspected = InspectedDays()
    cache = Settings().cache_directory
    files = _without_copies(days, cache, inspected)
    opened = _opened(files, request, inspected)
    kinds = {
        day: found
        for day, log in opened.items()
        if (found := _attempt(day, lambda log=log: column_kinds(log.source), inspected)) is not None
    }
    usual = _usual(kinds)
    for day, found in kinds.items():
        lacking = _lacking(opened[day], found, usual, request.source.max_bad_share, inspected)
        if lacking is None:
            continue
        log = _open(day, files[day], request, lacking)
        source = log.source
        told = (day.isoformat(), *file_hashes(source.paths, cache), source.identity, source.schema.model_dump_json())
        digest = hashlib.sha256("|".join(told).encode()).hexdigest()
        figures = _attempt(day, lambda log=log, digest=digest: figures_of(log, digest, figures_folder), inspected)
        if figures is not None and _is_readable(figures, request.source.max_bad_share, inspected):
            inspected.logs[day], inspected.figures[day] = log, figures
    return inspected


def _without_copies(
    days: Mapping[date, Sequence[Path]], cache: Path, inspected: InspectedDays
) -> dict[date, tuple[Path, ...]]:
    """Return the days without empty files, copies within a day, and days that are copies of an earlier day."""
    seen: dict[tuple[str, ...], date] = {}
    files: dict[date, tuple[Path, ...]] = {}
    for day, paths in days.items():
        distinct: dict[str, Path] = {}
        names = {path.name for path in paths}
        for path in paths:
            if path.stat().st_size == 0:
                inspected.report(day, "empty", f"{path} is empty and was passed over.")
            elif path.suffix == ".gz" and path.name.removesuffix(".gz") in names:
                inspected.report(day, "duplicated", f"{path} is there decompressed as well and was skipped.")
            else:
                digest = file_hashes((path,), cache)[0]
                if digest in distinct:
                    inspected.report(
                        day, "duplicated", f"{path} is a copy of {distinct[digest].name} and was passed over."
                    )
                distinct.setdefault(digest, path)
        content = tuple(sorted(distinct))
        if not content:
            continue
        if content in seen:
            inspected.report(day, "duplicated", f"{day} holds the same bytes as {seen[content]} and is left out.")
            continue
        seen[content] = day
        files[day] = tuple(distinct.values())
    return files


def _opened(
    files: Mapping[date, tuple[Path, ...]], request: NightlyRequest, inspected: InspectedDays
) -> dict[date, DayLog]:
    """Open each day; raise if no day can be opened, since the schema of the request may then be wrong."""
    opened: dict[date, DayLog] = {}
    problem: DataError | None = None
    for day, paths in files.items():
        try:
            opened[day] = _open(day, paths, request)
        except DataError as error:
            problem = error
            inspected.report(day, "unreadable", f"{day} is left out: {_clause(error)}.")
    if problem is not None and not opened:
        raise problem
    return opened


def _open(day: date, paths: Sequence[Path], request: NightlyRequest, without: Collection[str] = ()) -> DayLog:
    asked, loss = request.source, request.architecture.loss
    return open_day(day, paths, asked.format, asked.schema_file, without=without, where=asked.where, loss=loss)


def _attempt(day: date, work: Callable[[], Found], inspected: InspectedDays) -> Found | None:
    """Return the result of `work`; if the day cannot be read, add a finding and return None."""
    try:
        return work()
    except DataError as error:
        inspected.report(day, "unreadable", f"{day} is left out: {_clause(error)}.")
        return None


def _usual(kinds: Mapping[date, Mapping[str, Kind]]) -> dict[str, Kind]:
    """Return the most frequent data type of each column; columns that most days lack are left out."""
    counts: dict[str, Counter[Kind]] = {}
    for found in kinds.values():
        for name, kind in found.items():
            counts.setdefault(name, Counter())[kind] += 1
    # A day on which a column has no values is ignored for the kind of the column.
    return {
        name: sorted(count, key=lambda kind, count=count: (kind == "empty", -count[kind]))[0]
        for name, count in counts.items()
        if 2 * count.total() > len(kinds)
    }


def _lacking(
    log: DayLog, kinds: Mapping[str, Kind], usual: Mapping[str, Kind], max_bad_share: float, inspected: InspectedDays
) -> set[str] | None:
    """Return the features to read as missing on this day; None if the day cannot be used at all."""
    if not kinds:  # the format has no header
        return set()
    day, schema = log.day, log.schema
    if schema.label.column not in kinds:
        inspected.report(day, "column gone", f"{day} has no column {schema.label.column}, the label, and is left out.")
        return None
    features = {*schema.feature_columns} - {*schema.session_columns}
    gone = {name for name in features if name not in kinds and holder_of(name, kinds) is None}
    for name in sorted(gone):
        inspected.report(day, "column gone", f"{day} has no column {name}: its values count as missing there.", name)
    for name in sorted(kinds.keys() - usual.keys() - set(schema.read_columns)):
        inspected.report(
            day, "column new", f"{day} has the column {name}, which the schema does not name: it is not learned."
        )
    multi = {field.column for field in schema.multi_valued}
    numbers = {*schema.numeric, *(field.column for field in schema.categorical if field.buckets is not None)}
    for name in sorted(features - gone):
        kind = kinds.get(name, "number")  # an element of a list column
        if kind == "empty":
            continue
        if name in usual and kind != usual[name]:
            inspected.report(
                day, "type changed", f"{name} is {_noun(kind)} on {day}, usually it is {_noun(usual[name])}."
            )
        is_wrong = kind == "other" or (kind == "list" and name not in multi)
        if name in numbers and kind not in {"number", "list", "other"}:
            is_wrong = unreadable_share(log.source, name) > max_bad_share
        if is_wrong:
            gone.add(name)
            inspected.report(
                day, "type changed", f"{name} cannot be read on {day}: its values count as missing there.", name
            )
    return gone


def _is_readable(figures: DayFigures, max_bad_share: float, inspected: InspectedDays) -> bool:
    day = figures.day
    if figures.rejected_share > max_bad_share:
        inspected.report(
            day,
            "unreadable",
            f"{figures.rejected} rows ({figures.rejected_share:.1%}) of {day} cannot be read, such as "
            f"{figures.first_rejection}: the day is left out.",
        )
        return False
    if not figures.rows:
        inspected.report(day, "empty", f"{day} holds no row and is left out.")
        return False
    return True


def _noun(kind: Kind) -> str:
    return {"number": "a number", "text": "a text", "time": "a time", "list": "a list", "other": "nested"}[kind]


def _clause(error: Exception) -> str:
    """Return the message of an error without its advice, for use within another sentence."""
    return str(error).partition(": ")[0].rstrip(".")
