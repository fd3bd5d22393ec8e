"""Figures tell the rows that they are measured on: new users, whole days, repeated test rows, one class or user."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import Dataset
from shunter.engine.metrics import compute_metrics, grouped_area_under_roc
from shunter.engine.results import Evaluation
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.split import TimeSplit
from shunter.ingestion.findings import findings_of_dataset
from shunter.ingestion.schema import Split
from shunter.ingestion.sources.open import open_source
from shunter.reporting.card.figures import NoInterval, TaskQuality
from shunter.reporting.card.quality import evaluate_quality, user_groups
from shunter.tracking.convention import data_params
from tests.engine.synthetic import write_dataset

RANDOM = np.random.default_rng(0)
SIDES = {"categorical": ["user", "item"], "user": "user", "item": "item", "vocabulary": {"min_count": 1}}


def clicks(rows: int, users: tuple[int, int] = (0, 30)) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "click": (RANDOM.random(rows) < 0.4).astype(int),
            "user": RANDOM.integers(*users, rows),
            "item": RANDOM.integers(0, 500, rows),
        }
    )


def ingested(
    folder: Path, log: pl.DataFrame, test: pl.DataFrame | None = None, *, processes: int | None = None, **schema: str
) -> Dataset:
    (folder / "schema.yaml").write_text(yaml.safe_dump({"label": "click", **SIDES, **schema}))
    log.write_csv(folder / "log.csv")
    held_out = {}
    if test is not None:
        test.write_csv(folder / "test.csv")
        held_out["test"] = str(folder / "test.csv")
    source = open_source(str(folder / "log.csv"), None, str(folder / "schema.yaml"), folder, held_out)
    ranks = bool((log["click"] == 1).all())
    return ingest_source(source, folder / "cache", 0, 0.01, positives_suffice=ranks, processes=processes)[0]


def kinds(dataset: Dataset) -> set[str]:
    return {finding.kind for finding in findings_of_dataset(dataset)}


@pytest.mark.parametrize("processes", [1, 2])
def test_users_new_since_training_are_users_of_the_gauc(processes: int, tmp_path: Path) -> None:
    test = clicks(400, users=(100, 120)).with_columns(user=pl.format("0{}", "user"))
    dataset = ingested(tmp_path, clicks(600), test, processes=processes)
    groups = user_groups(dataset, "user")
    assert len(np.unique(groups)) == test["user"].n_unique() == 20
    labels, logits = test["click"].to_numpy().astype(np.float32), RANDOM.normal(size=400)
    expected = grouped_area_under_roc(labels, logits, test["user"].cast(pl.Int64).to_numpy())
    assert grouped_area_under_roc(labels, logits, groups) == pytest.approx(expected)
    forgotten = replace(dataset, user=None)
    assert np.isnan(grouped_area_under_roc(labels, logits, user_groups(forgotten, "user"))), "ingested without keys"


def test_rows_without_a_user_are_no_user(tmp_path: Path) -> None:
    test = clicks(200).with_columns(user=pl.when(pl.int_range(200) < 50).then(None).otherwise("user"))
    groups = user_groups(ingested(tmp_path, clicks(600), test), "user")
    assert len(np.unique(groups)) == 50 + test["user"].drop_nulls().n_unique()


@pytest.mark.parametrize(
    ("full_day", "size", "is_told", "expected"),
    [(11, 2_800, True, [10, 11]), (8, 2_800, True, [9, 10]), (1, 120, False, [10, 11])],
)
def test_one_day_of_most_rows_is_told_and_cut_off_where_it_fits_best(
    full_day: int, size: int, is_told: bool, expected: list[int], tmp_path: Path
) -> None:
    rows = {day: size if day == full_day else 120 for day in range(1, 12)}
    days = [f"2026-03-{day:02}" for day, count in rows.items() for _ in range(count)]
    dataset = ingested(tmp_path, clicks(len(days)).with_columns(when=pl.Series(days)), time="when")
    assert ("split" in kinds(dataset)) == is_told
    assert dataset.asked_shares == (0.8, 0.1, 0.1)
    assert dataset.time_cuts is not None
    assert [datetime.fromtimestamp(time / 1e6, UTC).day for time in dataset.time_cuts] == expected
    assert Dataset.load(dataset.directory).time_cuts == dataset.time_cuts


def test_a_full_day_is_split_within_where_its_times_are_known() -> None:
    seconds = np.concatenate([np.arange(1_200) * 600, 1e6 + np.arange(2_800)]).astype(np.float64)
    split = TimeSplit.fit([seconds], Split())
    assert np.searchsorted(seconds, split.cuts).tolist() == [3_200, 3_600]


@pytest.mark.parametrize("processes", [1, 2])
def test_test_rows_that_repeat_training_rows_are_told_with_their_share(processes: int, tmp_path: Path) -> None:
    log = clicks(600)
    new = clicks(100, users=(30, 60))
    copied = ingested(tmp_path, log, pl.concat([log.head(300), new]), processes=processes)
    # The validation part is cut from the training part, and takes some of the repeated rows along.
    share = copied.splits["test"].repeated_share
    assert share == pytest.approx(0.75 * copied.splits["train"].rows / 600, abs=0.03)
    assert data_params(copied)["data.test_repeated_share"] == share
    assert "repeated" in kinds(copied)
    flipped = ingested(tmp_path, log, log.with_columns(click=1 - pl.col("click")), processes=processes)
    assert flipped.splits["test"].repeated_share == pytest.approx(0, abs=0.03)
    assert "repeated" not in kinds(flipped)


def test_positives_alone_have_no_auc_that_chance_could_move(tmp_path: Path) -> None:
    assert not kinds(ingested(tmp_path, clicks(600).with_columns(click=1))) & {"few", "one_class"}


def quality(folder: Path, positives: int, users: int) -> TaskQuality:
    labels = (np.arange(400) < positives).astype(np.float32)
    logits = RANDOM.normal(size=400) + labels
    evaluation = Evaluation(metrics=compute_metrics(labels, logits), labels=labels, logits=logits.astype(np.float32))
    dataset = write_dataset(folder, rows=600)
    return evaluate_quality(evaluation, dataset, np.arange(400) % users, seed=0, resamples=100)[0]


@pytest.mark.parametrize(
    ("positives", "users", "reason"),
    [(200, 1, NoInterval.FEW_USERS), (0, 50, NoInterval.ONE_CLASS), (1, 50, NoInterval.RARE_CLASS)],
)
def test_the_reason_why_figures_have_no_interval_is_the_right_one(
    positives: int, users: int, reason: NoInterval, tmp_path: Path
) -> None:
    found = quality(tmp_path, positives, users)
    assert {figure.low for figure in found.figures if figure.name in ("auc", "ne")} == {None}
    assert found.no_interval is reason
