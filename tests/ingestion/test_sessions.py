"""Sessions of a log, divided by gaps: against their definition, counted, and refused where they would be inexact."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import SPLITS, Dataset
from shunter.errors import DataError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.check import check
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.split import UserTimeSplit
from shunter.ingestion.second_pass import ENCODER_FOLDER
from shunter.ingestion.sources.days import DaysSource, open_day
from shunter.ingestion.sources.open import open_source
from shunter.reporting.card.facts import data_facts
from shunter.retraining.figures import describe
from shunter.serving.few_values import ValueEncoder
from shunter.tracking.convention import data_params
from tests.ingestion.conftest import Ingest

GAP_MINUTES, START = 30, 1_700_000_000
SCHEMA: dict[str, Any] = {
    "label": "click",
    "numeric": ["number", "place", {"column": "pause", "buckets": [60, 600]}],
    "categorical": ["user", "item", "session"],
    "user": "user",
    "item": "item",
    "group": "session",
    "time": "at",
    "sessions": {
        **{"gap_minutes": GAP_MINUTES, "column": "session"},
        **{"position": "place", "seconds_since_previous": "pause"},
    },
    "vocabulary": {"min_count": 1},
}


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    """2,000 rows in any order, with equal times, gaps of exactly the limit, and rows without a user."""
    random = np.random.default_rng(0)
    steps = random.choice([0, 1, 59, 600, GAP_MINUTES * 60, GAP_MINUTES * 60 + 1, 90_000], 2_000)
    users = random.integers(0, 40, 2_000)
    times = START + np.array([steps[:row][users[:row] == user].sum() for row, user in enumerate(users)])
    return pl.DataFrame(
        {
            "click": random.integers(0, 2, 2_000),
            "number": random.permutation(2_000),
            "user": [None if user == 7 else f"u{user}" for user in users],
            "item": random.integers(0, 50, 2_000),
            "at": times,
        }
    ).sample(fraction=1, shuffle=True, seed=0)


@pytest.fixture(scope="module")
def expected(log: pl.DataFrame) -> dict[int, tuple[tuple[str, int] | None, int | None, int | None]]:
    """Session, earlier rows in it, and seconds since the user's last earlier time, of each row by its number."""
    found = dict[int, Any]()
    for (user,), rows in log.group_by("user"):
        first, last, sessions = None, None, dict[int, int]()
        for at in rows["at"].unique().sort():
            if first is None or last is None or at - last > GAP_MINUTES * 60:
                first = at
            sessions[at], pause, last = first, None if last is None else at - last, at
            before = sum(first <= other < at for other in rows["at"])
            for number in rows.filter(pl.col("at") == at)["number"]:
                found[number] = (None, None, None) if user is None else ((str(user), first), before, pause)
    return found


def values_of(dataset: Dataset) -> dict[int, tuple[int, float | None, int]]:
    """Id of the session, position and bucket of the pause of each row, by the number of the row."""
    encoder = Encoder.load(dataset.directory / ENCODER_FOLDER)
    place = {field.name: index for index, field in enumerate(dataset.features.categorical)}
    found = dict[int, tuple[int, float | None, int]]()
    for part in SPLITS:
        dense, ids = (np.load(dataset.directory / f"{part}.{kind}.npy") for kind in ("dense", "categorical"))
        number, position = (dense[:, i] * field.deviation + field.mean for i, field in enumerate(encoder.numeric))
        for row, at in enumerate(np.rint(np.expm1(number)).astype(int).tolist()):
            earlier = None if dense[row, 1] == 0 else round(float(np.expm1(position[row])))
            found[at] = (int(ids[row, place["session"]]), earlier, int(ids[row, place["pause"]]))
    return found


@pytest.mark.parametrize("form", ["parquet", "csv", "milliseconds", "dates"])
def test_values_are_those_of_the_definition_in_any_order_of_rows(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame, expected: dict[int, Any], form: str
) -> None:
    path = tmp_path / ("log.csv" if form == "csv" else "log.parquet")
    if form == "milliseconds":
        log = log.with_columns(pl.col("at") * 1_000)
    if form == "dates":
        log = log.with_columns(pl.from_epoch("at").dt.strftime("%d.%m.%Y %H:%M:%S"))
    log.write_csv(path) if form == "csv" else log.write_parquet(path, row_group_size=300)
    dataset, _ = ingest_file(path, SCHEMA)
    found = values_of(dataset)
    training_sessions = dict[int, set[Any]]()
    assert found.keys() == expected.keys()
    for number, (session, position, pause) in found.items():
        own, earlier, seconds = expected[number]
        assert position == earlier
        assert pause == (0 if seconds is None else 1 + sum(seconds >= edge for edge in (60, 600)))
        if session:
            training_sessions.setdefault(session, set()).add(own)
    assert all(len(owns) == 1 for owns in training_sessions.values())
    sessions = {own for own, _, _ in expected.values() if own is not None}
    assert dataset.sessions == len(sessions) == data_facts(dataset).sessions == data_params(dataset)["data.sessions"]
    assert Dataset.load(dataset.directory).sessions == dataset.sessions


def test_check_counts_sessions(tmp_path: Path, log: pl.DataFrame, expected: dict[int, Any]) -> None:
    log.write_csv(tmp_path / "log.csv")
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    checked = check(str(tmp_path / "log.csv"), schema_file=str(tmp_path / "schema.yaml"))
    [told] = [finding.words for finding in checked.findings if finding.kind == "sessions"]
    sessions = {own for own, _, _ in expected.values() if own is not None}
    assert told.split()[0] == f"{len(sessions):,}"


def test_sessions_are_users_of_histories_splits_and_floors(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame, expected: dict[int, Any]
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    schema = {
        **{"label": "click", "categorical": ["item", "session"], "user": "session", "item": "item", "time": "at"},
        "sessions": {"gap_minutes": GAP_MINUTES, "column": "session", "by": "user"},
        "min_rows": {"session": 2},
        "split": {"per_user": "leave_one_out"},
        "sequences": [{"column": "earlier", "items": "item", "by": "session", "length": 100}],
        "vocabulary": {"min_count": 1},
    }
    dataset, _ = ingest_file(tmp_path / "log.parquet", schema)
    rows = pl.DataFrame(
        [(own, at) for number, at in log.select("number", "at").rows() if (own := str(expected[number][0])) != "None"],
        ["session", "at"],
        orient="row",
    ).filter(pl.len().over("session") >= 2)
    times = rows.group_by("session").agg(pl.col("at").n_unique().alias("times"), pl.col("at").max().alias("last"))
    last = rows.join(times.filter(pl.col("times") > 2), on="session").filter(pl.col("at") == pl.col("last"))
    assert (dataset.rows, dataset.split_by) == (len(rows), UserTimeSplit.kind)
    assert dataset.splits["test"].rows == len(last)
    bag = [field.name for field in dataset.features.categorical].index("earlier")
    lengths = [np.load(dataset.directory / f"{part}.bag{bag}.offsets.npy")[-1] for part in SPLITS]
    assert sum(lengths) == sum(earlier or 0 for _, earlier, _ in expected.values())
    encoder = Encoder.load(dataset.directory / ENCODER_FOLDER)
    assert "session" in encoder.columns  # a user is needed to rank


def test_days_have_the_values_of_the_whole_log_if_each_begins_anew(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame
) -> None:
    days = {name[0]: part for name, part in log.group_by(pl.from_epoch("at").dt.date()) if len(part) > 20}
    log = pl.concat([*days.values()])
    keys = {**SCHEMA, "sessions": {**SCHEMA["sessions"], "within_day": True}, "min_rows": {"session": 2}}
    log.write_parquet(tmp_path / "log.parquet")
    whole, _ = ingest_file(tmp_path / "log.parquet", keys)
    schema = str(tmp_path / "schema.yaml")
    logs = []
    for day, part in days.items():
        part.write_parquet(path := tmp_path / f"{day}.parquet")
        logs.append(open_day(day, [path], None, schema))
        assert describe(logs[-1]).rows == len(part)
    source = DaysSource("days", tuple(logs))
    found, _ = ingest_source(source, tmp_path / "days", 0, 0.01)
    assert found.sessions == whole.sessions
    first, other = ({number: values[1:] for number, values in values_of(data).items()} for data in (whole, found))
    assert first == other
    assert len(days) > 3
    encoder = Encoder.load(found.directory / ENCODER_FOLDER)
    read = logs[0].as_read_by(encoder).with_crosses_of(encoder)  # as for a champion
    assert sum(len(batch.labels) for batch in read.batches()) == len(days[logs[0].day])
    lacking = open_day(logs[0].day, logs[0].source.paths, None, schema, without={"user"})
    assert np.isnan(next(iter(lacking.batches())).columns.numeric[1]).all()
    log.write_parquet(tmp_path / "mixed.parquet")
    mixed = DaysSource("days", (open_day(logs[0].day, [tmp_path / "mixed.parquet"], None, schema),))
    with pytest.raises(DataError):
        ingest_source(mixed, tmp_path / "mixed", 0, 0.01)


def test_rows_to_be_scored_bring_positions_and_may_lack_the_session(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    dataset, _ = ingest_file(tmp_path / "log.parquet", SCHEMA)
    encoder = Encoder.load(dataset.directory / ENCODER_FOLDER)
    assert {"place", "pause"} <= {*encoder.columns}
    assert (encoder.optional_columns, "session" in encoder.columns) == (("session",), False)
    rows: dict[str, list[Any]] = {"number": [5], "place": [0], "pause": [None], "user": ["u1"], "item": [3]}
    table = {name: pl.Series(name, values) for name, values in rows.items()}
    without = encoder.encode_table(table, 1)
    empty = encoder.encode_table({**table, "session": pl.Series("session", [None], pl.String)}, 1)
    assert ValueEncoder(encoder).encode(rows, 1) is None  # whole columns are encoded then
    assert np.array_equal(without.categorical, empty.categorical)
    assert without.flags is not None
    assert empty.flags is not None
    assert np.array_equal(without.flags, empty.flags)
    with pytest.raises(DataError):
        encoder.encode_table({name: table[name] for name in table if name != "place"}, 1)


@pytest.mark.parametrize(
    "keys",
    [
        {"time": None},
        {"part": "number"},
        {"user": None},
        {"sessions": {"gap_minutes": 0, "column": "session"}},
        {"sessions": {"gap_minutes": 30, "column": "at"}},
        {"sessions": {"gap_minutes": 30, "column": "visit"}},
        {"sessions": {"gap_minutes": 30, "column": "user"}},
    ],
)
def test_sessions_without_time_user_or_reader_are_refused(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame, keys: dict[str, Any]
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError):
        ingest_file(tmp_path / "log.parquet", {**SCHEMA, **keys})


def test_times_without_a_unit_given_parts_and_days_are_refused(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    log.with_columns(pl.col("at") - START).write_parquet(tmp_path / "counted.parquet")
    with pytest.raises(DataError, match="unit"):
        ingest_file(tmp_path / "counted.parquet", SCHEMA)
    seconds = {**SCHEMA, "time": {"column": "at", "format": "seconds"}}
    counted, _ = ingest_file(tmp_path / "counted.parquet", seconds)
    assert counted.sessions == ingest_file(tmp_path / "log.parquet", SCHEMA)[0].sessions
    log.with_columns(pl.lit(None).alias("user")).write_parquet(tmp_path / "nobody.parquet")
    with pytest.raises(DataError):
        ingest_file(tmp_path / "nobody.parquet", SCHEMA)
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    schema, path = str(tmp_path / "schema.yaml"), tmp_path / "log.parquet"
    with pytest.raises(DataError):
        open_day(date(2026, 3, 1), [path], None, schema)
    with pytest.raises(DataError):
        open_source(str(path), None, schema, tmp_path, {"test": str(tmp_path / "counted.parquet")})
