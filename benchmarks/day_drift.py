"""False alarms and found changes of the drift that nightly runs report, on real logs cut into days by their order.

A window of rows is a day, and each day from the eighth on is judged with the seven before it, by the product's own
findings (`shunter.retraining.findings`), all kinds of them. `false_alarm_share` is the share of these days with any
finding. `price_found_share` and `labels_found_share` are the shares of days found of which the first numeric column is
multiplied by 100, or of which the base rate is 1.5 times as high; `setting_lengths_found_share` is that of days of
which each row has lost all values but the first. Every third day is changed.

The constants of `shunter.retraining.findings` were set on the first two logs; the headline is about the other ones.

    python -m benchmarks.day_drift
"""

import gzip
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import yaml

from benchmarks.quality.data import SHARED_DATA
from benchmarks.report import parse_arguments, publish, table
from shunter.ingestion.sources.days import open_day
from shunter.ingestion.sources.open import open_source
from shunter.retraining.figures import DayFigures, describe
from shunter.retraining.findings import Finding, base_rate_finding, drift_findings
from shunter.retraining.nightly_request import DriftLimits
from shunter.settings import Settings

BEFORE = 7  # days, as nights by default
CHANGED_EVERY = 3
FIRST = date(2026, 1, 1)
LIMITS = DriftLimits()
PRICE_FACTOR, LABEL_FACTOR = 100, 1.5
NUMBERS = [f"I{number}" for number in range(1, 14)]
NAMES = [f"C{number}" for number in range(1, 27)]

Log = tuple[pl.DataFrame, dict[str, Any], int]
"""Rows by their order, their schema, and rows of a day."""


def criteo() -> Log:
    """Rows 90,000 to 110,000 of Criteo-Kaggle."""
    frame = pl.read_parquet(SHARED_DATA / "criteo_kaggle_rows90k_110k_indexed.parquet")
    return frame, {"label": "label", "numeric": NUMBERS, "categorical": NAMES}, 500


def first_criteo() -> Log:
    """The first 10,000 rows of Criteo-Kaggle."""
    with gzip.open(SHARED_DATA / "criteo_kaggle_first10k.tsv.gz") as file:
        frame = pl.read_csv(file.read(), separator="\t", has_header=False, new_columns=["label", *NUMBERS, *NAMES])
    return frame, {"label": "label", "numeric": NUMBERS, "categorical": NAMES}, 250


def open_bandit() -> Log:
    """Impressions of a fashion site in the order of time."""
    frame = pl.read_parquet(SHARED_DATA / "open_bandit_60k.parquet").sort("timestamp", maintain_order=True)
    features = ["item_id", *(f"user_feature_{number}" for number in range(4))]
    return frame, {"label": "click", "numeric": ["position", "propensity_score"], "categorical": features}, 1_000


def movielens() -> Log:
    """Ratings in the order of time, with the films that the user rated before, at most 20."""
    source = open_source("ml-100k", None, None, Settings().downloads_directory)
    frame = pl.read_parquet(source.paths[0]).sort("timestamp", maintain_order=True)  # pyright: ignore[reportAttributeAccessIssue]
    seen: dict[str, list[str]] = {}
    before = []
    for user, item in frame.select("user_id", "item_id").iter_rows():
        own = seen.setdefault(user, [])
        before.append("|".join(own[-20:]))
        own.append(item)
    frame = frame.with_columns(
        pl.col("genres").list.join("|"), rated=pl.Series(before), click=(pl.col("rating") >= 4).cast(pl.Int8)
    )
    several = [{"column": name, "separator": "|"} for name in ("genres", "rated")]
    columns = ["user_id", "item_id", "gender", "occupation", "zip_code"]
    numeric = ["age", "release_year"]
    return frame, {"label": "click", "numeric": numeric, "categorical": columns, "multi_valued": several}, 1_000


def frappe() -> Log:
    """Uses of apps, in the order of the published file."""
    with np.load(SHARED_DATA / "frappe_x1_train_valid.npz") as stored:
        columns = {f"c{number}": values for number, values in enumerate(stored["train_x"].T)}
        frame = pl.DataFrame({"click": stored["train_y"], **columns})
    return frame, {"label": "click", "categorical": list(columns)}, 2_000


SETTING: dict[str, Callable[[], Log]] = {"criteo": criteo, "ml-100k": movielens}
CONFIRMING: dict[str, Callable[[], Log]] = {"open_bandit": open_bandit, "frappe": frappe, "first_criteo": first_criteo}


def days_of(log: Log, folder: Path, changed: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> list[DayFigures]:
    """The figures of each window of rows, after a change."""
    frame, schema, rows = log
    (folder / "schema.yaml").write_text(yaml.safe_dump(schema))
    columns = [name for name in frame.columns if name in str(schema)]
    found = []
    for number in range(0 if changed is None else BEFORE, len(frame) // rows, 1 if changed is None else CHANGED_EVERY):
        window = frame.select(columns).slice(number * rows, rows)
        path = folder / "day.parquet"
        (window if changed is None else changed(window)).write_parquet(path)
        found.append(describe(open_day(FIRST + timedelta(number), [path], None, str(folder / "schema.yaml"))))
    return found


def findings_of(day: DayFigures, before: Sequence[DayFigures]) -> list[Finding]:
    """What a night reports of the day."""
    usual = float(np.median([one.base_rate for one in (*before, day)]))
    quarantined = base_rate_finding(day, usual, LIMITS)
    return [quarantined] if quarantined else drift_findings(day, before, LIMITS)


def judged(days: Sequence[DayFigures], changed: Sequence[DayFigures]) -> Iterator[list[Finding]]:
    """The findings of each changed day by the unchanged ones before it."""
    for day in changed:
        number = (day.day - FIRST).days
        yield findings_of(day, days[number - BEFORE : number])


def dearer(schema: dict[str, Any]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Multiply the first numeric column."""
    return lambda frame: frame.with_columns(pl.col(schema["numeric"][0]) * PRICE_FACTOR)


def shorter(schema: dict[str, Any]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Keep only the first value of the last column of several."""
    name = schema["multi_valued"][-1]["column"]
    return lambda frame: frame.with_columns(pl.col(name).str.split("|").list.first())


def with_base_rate(day: DayFigures) -> DayFigures:
    """The day with more positive labels, at most all of them."""
    return day.model_copy(update={"positives": min(round(day.positives * LABEL_FACTOR), day.rows)})


def measure(log: Log) -> dict[str, Any]:
    """Judge each day of a log, as it is and changed."""
    with TemporaryDirectory() as folder:
        days = days_of(log, Path(folder))
        clean = list(judged(days, days[BEFORE:]))
        kinds = [(finding.kind, finding.column) for found in clean for finding in found]
        shares = {"false_alarms": [bool(found) for found in clean]}
        for key, change, kind in (("price", dearer, "numeric"), ("lengths", shorter, "multi_valued")):
            if kind in log[1]:
                changed = judged(days, days_of(log, Path(folder), change(log[1])))
                column = log[1][kind][0] if kind == "numeric" else log[1][kind][-1]["column"]
                shares[key] = [any(finding.column == column for finding in found) for found in changed]
        raised = judged(days, [with_base_rate(day) for day in days[BEFORE:]])
        shares["labels"] = [any(finding.kind in {"labels", "base rate"} for finding in found) for found in raised]
    counts = {
        f"{kind} of {column or 'the labels'}": kinds.count((kind, column))
        for kind, column in sorted(set(kinds), key=str)
    }
    return {"days": len(clean), "counts": counts} | {key: float(np.mean(found)) for key, found in shares.items()}


def main() -> None:
    """Judge the days of all logs and publish."""
    arguments = parse_arguments(__doc__)
    details = {}
    for name, read in (SETTING | CONFIRMING).items():
        frame, schema, rows = read()
        log = (frame.head(20 * rows), schema, rows) if arguments.quick else (frame, schema, rows)
        details[name] = measure(log) | {"rows_of_a_day": rows}
    keys = ("days", "false_alarms", "price", "lengths", "labels")
    table(
        "Days of a real log by order",
        ("log", *keys),
        [(name, *(f"{found.get(key, float('nan')):.3g}" for key in keys)) for name, found in details.items()],
    )

    def mean(key: str, logs: Sequence[str]) -> float:
        known = [details[name] for name in logs if key in details[name]]
        return sum(one[key] * one["days"] for one in known) / sum(one["days"] for one in known)

    headline = {"false_alarm_share": mean("false_alarms", list(CONFIRMING))}
    headline |= {f"{key}_found_share": mean(key, list(CONFIRMING)) for key in ("price", "labels")}
    headline["setting_false_alarm_share"] = mean("false_alarms", list(SETTING))
    headline["setting_lengths_found_share"] = mean("lengths", list(SETTING))
    publish("day_drift", headline, details, seeds=[], quick=arguments.quick)


if __name__ == "__main__":
    main()
