"""Histories that a column holds, and histories built from the log, against a slow look back over all rows."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.data.dataset import SPLITS, Dataset
from shunter.errors import DataError
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.history import HistoryLog
from shunter.ingestion.schema import Schema
from tests.ingestion.conftest import Ingest

Row = tuple[int, int, int, bool]  # user, time, item, is kept


def look_back(rows: list[Row], length: int) -> list[list[int]]:
    """Of each row, the kept items that its user had at an earlier time, in order of time and then of the rows."""
    histories = []
    for user, time, _, _ in rows:
        before = [
            (when, place, item)
            for place, (who, when, item, is_kept) in enumerate(rows)
            if who == user != 0 and when < time and is_kept and item != 0
        ]
        histories.append([item for _, _, item in sorted(before)][-length:])
    return histories


@settings(max_examples=30, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 9), st.booleans()), max_size=12),
        max_size=4,
    ),
    length=st.integers(1, 5),
)
def test_histories_are_those_of_a_slow_look_back(
    batches: list[list[Row]], length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = HistoryLog(folder, "history", length)
    for batch in batches:
        users, times, items, is_kept = np.array(batch, np.int64).reshape(-1, 4).T
        log.append(
            users.astype(np.uint64),
            times.astype(np.float64),
            items.astype(np.uint64),
            is_kept=is_kept.astype(bool),
            is_training=np.arange(len(batch)) % 2 == 0,
        )
    log.build()
    found = [bag.keys[start:end].tolist() for bag in log.read() for start, end in pairwise(bag.offsets)]
    log.close()
    expected = look_back([row for batch in batches for row in batch], length)
    assert found == expected
    in_training = [place % 2 == 0 for batch in batches for place in range(len(batch))]
    assert log.empty_in_training == sum(not one for one, it in zip(expected, in_training, strict=True) if it)
    assert not list(folder.iterdir())


def bags_of(dataset: Dataset, name: str, split: str) -> list[list[int]]:
    index = [field.name for field in dataset.features.categorical].index(name)
    values = np.load(dataset.directory / f"{split}.bag{index}.values.npy")
    offsets = np.load(dataset.directory / f"{split}.bag{index}.offsets.npy")
    return [values[start:end].tolist() for start, end in pairwise(offsets)]


def log_of_sessions(rows: int = 400) -> pl.DataFrame:
    random = np.random.default_rng(3)
    return pl.DataFrame(
        {
            "click": random.integers(0, 2, rows),
            "shop": random.choice(["north", "south"], rows),
            "item": [f"i{one}" for one in random.integers(0, 12, rows)],
            "tags": random.choice(["a|b", "b", "", "c|a"], rows),
            "session": pl.Series(["s1", "s2", "s3", None])[random.integers(0, 4, rows)],
            "when": random.permutation(rows) // 3,
        }
    )


BUILT: dict[str, Any] = {
    "label": "click",
    "categorical": ["item", "shop"],
    "multi_valued": [{"column": "tags", "separator": "|"}],
    "sequences": [
        {"column": "seen", "items": "item", "by": "session", "length": 4},
        {"column": "clicked", "items": "item", "by": "session", "length": 3, "positives_only": True},
    ],
    "time": "when",
}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_each_row_has_what_its_session_had_before_and_nothing_later(
    ingest_file: Ingest, tmp_path: Path, suffix: str
) -> None:
    frame = log_of_sessions()
    path = tmp_path / f"log.{suffix}"
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    dataset, _ = ingest_file(path, BUILT)
    assert [field.name for field in dataset.features.categorical] == ["item", "seen", "clicked", "shop", "tags"]
    assert dataset.features.table_of == (0, 0, 0, 1, 2)
    frame = frame.with_columns(pl.col("session").fill_null(""))  # as CSV has it: no session, so no history
    codes = {name: place for place, name in enumerate(("", "s1", "s2", "s3"))}
    items = Encoder.load(dataset.directory / "encoder").encode(pd.DataFrame(frame.to_pandas())).categorical[:, 0]
    rows = [
        (codes[session], when, item + 1, True)
        for session, when, item in zip(frame["session"], frame["when"], items.tolist(), strict=True)
    ]
    cuts = [dataset.splits[split].rows for split in SPLITS]
    split_of = np.digitize(frame["when"].to_numpy(), np.sort(frame["when"].to_numpy())[np.cumsum(cuts)[:2]])
    clicked = [(*row[:3], bool(click)) for row, click in zip(rows, frame["click"], strict=True)]
    for name, log, length in (("seen", rows, 4), ("clicked", clicked, 3)):
        expected = [[item - 1 for item in history] for history in look_back(log, length)]
        for number, split in enumerate(SPLITS):
            wanted = [expected[row] for row in np.flatnonzero(split_of == number)]
            assert bags_of(dataset, name, split) == wanted
        statistics = next(field for field in dataset.fields if field.name == name)
        training = [expected[row] for row in np.flatnonzero(split_of == 0)]
        assert statistics.kind == "sequence"
        assert statistics.missing_share == pytest.approx(np.mean([not history for history in training]))


STORED: dict[str, Any] = {
    "label": "click",
    "categorical": ["shop", {"column": "item", "min_count": 1}],
    "sequences": [
        {"column": "last", "separator": ">", "length": 2, "min_count": 1},
        {"column": "seen", "items": "item", "length": 3},
    ],
}


def test_a_column_that_holds_a_history_keeps_its_latest_values_in_order(ingest_file: Ingest, tmp_path: Path) -> None:
    rows = 300
    frame = pl.DataFrame(
        {
            "click": [row % 2 for row in range(rows)],
            "shop": [f"s{row % 50}" for row in range(rows)],
            "item": [f"i{row % 3}" for row in range(rows)],
            "last": [("a>b>c", "c>>a", "", "b")[row % 4] for row in range(rows)],
            "seen": [(["i0", "i1", "i2", "i1"], ["new", "i0"], [], None)[row % 4] for row in range(rows)],
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    dataset, _ = ingest_file(tmp_path / "log.parquet", STORED)
    encoder = Encoder.load(dataset.directory / "encoder")
    assert [field.name for field in dataset.features.categorical] == ["shop", "item", "seen", "last"]
    assert [field.length for field in dataset.features.categorical] == [None, None, 3, 2]
    assert encoder.features == dataset.features
    items = {f"i{place}": int(encoder.categorical[1].ids.ids(_keys([f"i{place}"]))[0]) for place in range(3)}
    letters = {one: int(encoder.categorical[2].ids.ids(_keys([one]))[0]) for one in "abc"}
    assert sorted(items.values()) == sorted(letters.values()) == [1, 2, 3]
    seen = [[items["i1"], items["i2"], items["i1"]], [0, items["i0"]], []]
    last = [[letters["b"], letters["c"]], [letters["c"], letters["a"]], [], [letters["b"]]]
    for split in SPLITS:
        assert all(history in seen for history in bags_of(dataset, "seen", split))
        assert all(history in last for history in bags_of(dataset, "last", split))
    found = [history for split in SPLITS for history in bags_of(dataset, "seen", split)]
    assert sorted(found) == sorted([seen[min(row % 4, 2)] for row in range(rows)])
    scored = encoder.encode(frame.head(2).to_pandas())
    assert [bag.tolist() for bag in np.split(scored.bags[0][0], scored.bags[0][1][1:-1])] == seen[:2]


def _keys(values: list[str]) -> Any:
    from shunter.ingestion.encoding import columns as read

    return read.keys(pl.Series(values), "text")


def test_a_text_without_a_separator_is_one_value(ingest_file: Ingest, tmp_path: Path) -> None:
    frame = log_of_sessions().with_columns(path=pl.lit("a>b"))
    frame.write_parquet(tmp_path / "log.parquet")
    dataset, _ = ingest_file(
        tmp_path / "log.parquet",
        {"label": "click", "categorical": ["item", "shop"], "sequences": ["path"], "time": "when"},
    )
    assert {tuple(history) for history in bags_of(dataset, "path", "train")} == {(1,)}
    assert dataset.features.categorical[2].length == 50


def test_a_frame_to_be_scored_may_bring_a_built_history_or_not(ingest_file: Ingest, tmp_path: Path) -> None:
    log_of_sessions().write_parquet(tmp_path / "log.parquet")
    dataset, _ = ingest_file(tmp_path / "log.parquet", BUILT)
    encoder = Encoder.load(dataset.directory / "encoder")
    raw = pd.DataFrame({"item": ["i1"], "shop": ["north"], "tags": ["a"]})
    without = encoder.encode(raw)
    assert [bag.offsets.tolist() for bag in without.bags] == [[0, 0], [0, 0], [0, 1]]
    brought = encoder.encode(raw.assign(seen=[["i9", "i3", "i1", "i1", "never"]]))
    ids = encoder.categorical[0].ids.ids(_keys(["i3", "i1", "i1"])).tolist()
    assert brought.bags[0][0].tolist() == [*ids, 0]
    assert brought.bags[1][1].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        ({"column": "seen", "by": "session"}, "needs `items`"),
        ({"column": "seen", "items": "price", "by": "session"}, "must be one of the columns under `categorical`"),
        ({"column": "seen", "items": "item", "by": "click"}, "cannot be built by the label"),
        ({"column": "seen", "items": "item", "min_count": 3}, "shares the ids of item"),
        ({"column": "seen", "positives_only": True}, "needs a sequence with `by`"),
        ({"column": "seen", "length": 0}, "greater than or equal to 1"),
        ({"column": "item", "items": "item", "by": "session"}, "listed twice in the schema: item"),
    ],
)
def test_a_sequence_that_means_nothing_is_refused(sequence: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schema.model_validate({"label": "click", "categorical": ["item"], "time": "when", "sequences": [sequence]})


def test_a_built_sequence_needs_a_time_and_its_user_column(ingest_file: Ingest, tmp_path: Path) -> None:
    log_of_sessions().write_parquet(tmp_path / "log.parquet")
    untimed = {name: value for name, value in BUILT.items() if name != "time"}
    with pytest.raises(DataError, match="built by session, needs `time`"):
        ingest_file(tmp_path / "log.parquet", untimed)
    log_of_sessions().drop("session").write_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match="lacks the columns session"):
        ingest_file(tmp_path / "log.parquet", BUILT)
