"""Statistics of features, against counting by hand and against the definition of mutual information."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.data.dataset import Dataset
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.names import value_names
from shunter.ingestion.sources.open import open_source
from shunter.reporting.page.features import ValueStatistics, information, most_frequent, summarise
from shunter.reporting.page.publish import describe_features
from shunter.requests import TrainRequest
from shunter.settings import Settings
from tests.engine.synthetic import write_dataset


@pytest.fixture
def shop(tmp_path: Path) -> TrainRequest:
    """A log in which the shop decides the label and the colour does not."""
    random = np.random.default_rng(0)
    rows = 2_000
    shop = random.choice(["north", "south", "east"], rows, p=[0.5, 0.3, 0.2])
    chance = pd.Series(shop).map({"north": 0.9, "south": 0.5, "east": 0.1})
    frame = pd.DataFrame(
        {
            "click": (random.random(rows) < chance).astype(int),
            "price": random.gamma(2.0, 10.0, rows),
            "shop": shop,
            "colour": random.choice(["red", "blue"], rows),
            "tags": ["|".join(random.choice(["new", "sale"], random.integers(0, 3))) for _ in range(rows)],
        }
    )
    frame.to_csv(tmp_path / "shop.csv", index=False)
    (tmp_path / "schema.yaml").write_text(
        "{label: click, numeric: [price], categorical: [shop, colour], multi_valued: [{column: tags, separator: '|'}]}"
    )
    return TrainRequest(data=str(tmp_path / "shop.csv"), schema_file=str(tmp_path / "schema.yaml"))


def ingest(request: TrainRequest) -> Dataset:
    source = open_source(request.data, None, request.source.schema_file, Settings().downloads_directory)
    return ingest_source(source, Settings().cache_directory, 0, 0.01)[0]


def test_field_that_decides_comes_first_with_its_values_by_name(shop: TrainRequest) -> None:
    dataset = ingest(shop)
    summary = describe_features(dataset, shop)
    assert summary.fields[0].name == "shop"
    assert [value.name for value in summary.fields[0].values] == ["north", "south", "east"]
    rates = [value.base_rate for value in summary.fields[0].values]
    assert rates == pytest.approx([0.9, 0.5, 0.1], abs=0.06)
    by_name = {one.name: one for one in summary.fields}
    assert by_name["colour"].information == pytest.approx(0, abs=0.005)
    assert {value.name for value in by_name["tags"].values} == {"new", "sale"}
    assert by_name["tags"].information is None
    low, high = by_name["price"].values[0].name.split(" to ")
    assert 0 < float(low) < float(high) < 100
    assert sum(value.rows for value in by_name["price"].values) == dataset.splits["train"].rows


def test_a_history_that_was_built_is_in_no_column(shop: TrainRequest) -> None:
    schema = Path(str(shop.source.schema_file))
    frame = pd.read_csv(shop.data).assign(when=range(2_000), user=[number % 40 for number in range(2_000)])
    frame.to_csv(shop.data, index=False)
    schema.write_text(
        "{label: click, categorical: [shop, user], time: when, sequences: [{column: earlier, items: shop, by: user}]}"
    )
    by_name = {one.name: one for one in describe_features(ingest(shop), shop).fields}
    assert {value.name for value in by_name["shop"].values} == {"north", "south", "east"}
    assert by_name["earlier"].values


def test_log_that_is_gone_leaves_numbers_for_names(shop: TrainRequest) -> None:
    dataset = ingest(shop)
    Path(shop.data).unlink()
    assert describe_features(dataset, shop).fields[0].values[0].name == "no. 1"


def test_criteo_ids_are_named_without_the_log(tmp_path: Path) -> None:
    source = open_source("synthetic:3000", None, None, tmp_path)
    dataset, _ = ingest_source(source, tmp_path / "cache", 0, 0.01)
    names = value_names(source, Encoder.load(dataset.directory / "encoder"), most_frequent(dataset))
    assert all(len(name) == 8 and int(name, 16) >= 0 for field in names.values() for name in field.values())
    assert len(names) == 26


def test_counts_are_those_of_the_arrays(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=1_000)
    labels = np.load(tmp_path / "train.label.npy")
    ids = np.load(tmp_path / "train.categorical.npy")[:, 1]
    values, offsets = (np.load(tmp_path / f"train.bag3.{what}.npy") for what in ("values", "offsets"))
    by_name = {one.name: one for one in summarise(dataset, {}, {}).fields}
    for value in by_name["single1"].values:
        one = 0 if value.name.startswith("missing") else int(value.name.removeprefix("no. "))
        assert (value.rows, value.positives) == ((ids == one).sum(), labels[ids == one].sum())
    first = by_name["bag0"].values[0]
    one = 0 if first.name.startswith("missing") else int(first.name.removeprefix("no. "))
    assert first.rows == (values == one).sum()
    assert first.positives == sum(
        labels[row] * (values[offsets[row] : offsets[row + 1]] == one).sum() for row in range(len(labels))
    )


def test_many_rows_are_sampled_evenly(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=1_000)
    summary = summarise(dataset, {}, {}, most_rows=100)
    assert summary.sampled_rows == 100
    assert summary.train_rows == 700


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), min_size=1, max_size=6))
def test_information_is_a_share(table: list[tuple[int, int]]) -> None:
    counts = np.array([rows for rows, _ in table])
    positives = np.array([min(rows, positive) for rows, positive in table], float)
    assert 0 <= information(counts, positives) <= 1


def test_information_of_all_and_of_nothing() -> None:
    assert information(np.array([500, 500]), np.array([500.0, 0.0])) == pytest.approx(1, abs=1e-3)
    assert information(np.array([500, 500]), np.array([250.0, 250.0])) == 0
    chance = np.random.default_rng(0).binomial(20, 0.3, 5_000).astype(float)
    assert information(np.full(5_000, 20), chance) == pytest.approx(0, abs=0.005)


def test_interval_holds_the_rate_and_shrinks_with_rows() -> None:
    few, many = (ValueStatistics(name="x", rows=rows, positives=rows // 4) for rows in (20, 20_000))
    for one in (few, many):
        assert one.interval[0] < one.base_rate < one.interval[1]
    assert many.interval[1] - many.interval[0] < few.interval[1] - few.interval[0]
    assert ValueStatistics(name="x", rows=5, positives=0).interval[0] == 0
