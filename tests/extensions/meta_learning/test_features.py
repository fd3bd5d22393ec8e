"""Meta-features by hand on little data, and what they must not depend on."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info

from shunter.engine.data.dataset import Dataset, FieldStatistics, SplitStatistics
from shunter.extensions.meta_learning.features import meta_features
from shunter.models.spec import CategoricalFeature, Features, NumberLabel
from tests.engine.synthetic import write_dataset

Part = tuple[list[int], list[Any]]  # ids and labels
LITTLE: Part = [1, 1, 1, 1, 2, 2, 3, 4], [1, 1, 1, 1, 0, 0, 0, 0]
LATER: Part = [1, 2, 0, 5], [1, 0, 1, 0]


def write_field(directory: Path, train: Part, validation: Part) -> Dataset:
    """A data set of one field."""
    parts = {"train": train, "validation": validation}
    for part, (ids, labels) in parts.items():
        np.save(directory / f"{part}.categorical.npy", np.array(ids, dtype=np.int32)[:, None])
        np.save(directory / f"{part}.label.npy", np.array(labels, dtype=np.float32))
    rows = 1 + max(max(ids) for ids, _ in parts.values())
    return Dataset(
        name="little",
        directory=directory,
        fingerprint="little",
        features=Features(dense=(), categorical=(CategoricalFeature(name="field", rows=rows),)),
        splits={part: SplitStatistics(rows=len(ids), positives=sum(labels)) for part, (ids, labels) in parts.items()},
        split_by="hash",
        fields=(FieldStatistics(name="field", kind="categorical", cardinality=rows - 1, missing_share=0.25),),
        quarantined_rows=0,
    )


def test_figures_by_hand(tmp_path: Path) -> None:
    found = meta_features(write_field(tmp_path, LITTLE, LATER))
    assert found["rows"] == 8
    assert found["base_rate"] == 0.5
    assert found["categorical_fields"] == 1
    assert found["dense_fields"] == found["multi_valued_fields"] == 0
    assert found["table_rows_sum"] == found["table_rows_max"] == 6
    assert found["table_rows_geometric_mean"] == pytest.approx(6)
    assert found["rows_per_table_row"] == pytest.approx(8 / 6)
    assert found["missing_share"] == 0.25
    assert found["top_percent_share"] == 0.5  # the commonest of four ids
    assert found["entropy_share"] == pytest.approx(1.75 * math.log(2) / math.log(4))  # of 1/2, 1/4, 1/8, 1/8
    assert found["unseen_share"] == 0.5  # 0 and 5
    assert not {"bag_length", "dense_skewness"} & found.keys()


def test_landmarks_of_one_field_by_hand(tmp_path: Path) -> None:
    found = meta_features(write_field(tmp_path, LITTLE, LATER))
    # By a prior of ten rows id 1 is clicked (4 + 5) / 14 and id 2 (0 + 5) / 12; both unseen ids one half.
    losses = -np.log([9 / 14, 1 - 5 / 12, 0.5, 0.5])
    assert found["landmark_field_ne"] == pytest.approx(losses.mean() / math.log(2))
    assert found["landmark_bayes_auc"] == 3.5 / 4  # of four pairs the unseen ids tie one
    assert 0 < found["landmark_free_logistic_ne"] < found["landmark_logistic_ne"] < 1


@pytest.mark.parametrize("step", [1.0, 0.5])
def test_a_label_that_is_a_number_has_no_base_rate_and_no_landmarks(tmp_path: Path, step: float) -> None:
    labels = [step * number for number in range(1, 9)]
    dataset = write_field(tmp_path, (LITTLE[0], labels), (LATER[0], labels[:4]))
    number = NumberLabel(loss="mse", center=4.5 * step)
    found = meta_features(replace(dataset, features=replace(dataset.features, number=number)))
    assert found["rows"] == 8
    assert not [name for name in found if name == "base_rate" or name.startswith("landmark_")]


def test_landmarks_do_not_wake_threads_for_the_short_sums_of_their_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 200,000 generated rows they took 10.4 s of processor time with two threads of a busy machine, else 1.2 s."""
    threads: list[int] = []
    fit = LogisticRegression.fit

    def noted(model: LogisticRegression, *data: object) -> LogisticRegression:
        threads.append(max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"))
        return fit(model, *data)

    monkeypatch.setattr(LogisticRegression, "fit", noted)
    meta_features(write_dataset(tmp_path, rows=200))
    assert threads == [1, 1]


def test_a_power_law_has_its_exponent(tmp_path: Path) -> None:
    ids = np.repeat(np.arange(1, 51), np.round(20_000 / np.arange(1, 51) ** 1.2).astype(int)).tolist()
    labels = (np.arange(len(ids)) % 2).tolist()
    assert meta_features(write_field(tmp_path, (ids, labels), LATER))["zipf_exponent"] == pytest.approx(1.2, abs=0.01)


def test_one_class_has_no_landmarks_and_one_id_no_skew(tmp_path: Path) -> None:
    found = meta_features(write_field(tmp_path, ([1] * 8, [1] * 8), LATER))
    assert not [name for name in found if name.startswith("landmark_")]
    assert (found["zipf_exponent"], found["entropy_share"], found["top_percent_share"]) == (0, 1, 1)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=2_000)


def test_numbers_and_bags_count_too(dataset: Dataset) -> None:
    found = meta_features(dataset)
    assert found["dense_fields"] == 2
    assert found["bag_length"] == pytest.approx(2.0, abs=0.15)  # 0 to 4 ids, all as likely
    assert found["dense_skewness"] == pytest.approx(0, abs=0.2)
    assert found["dense_correlation"] == pytest.approx(0, abs=0.1)
    assert found["landmark_logistic_ne"] < found["landmark_field_ne"] < 1  # all fields tell more than the best one
    assert all(math.isfinite(value) for value in found.values())


def test_neither_the_order_of_rows_nor_the_number_of_an_id_matters(dataset: Dataset) -> None:
    before = meta_features(dataset)
    random = np.random.default_rng(1)
    renamed = [np.append(0, 1 + random.permutation(field.rows - 1)) for field in dataset.features.categorical]
    for part in ("train", "validation"):
        _shuffle(dataset, part, renamed, random)
    assert meta_features(dataset) == pytest.approx(before, rel=1e-3)


def _shuffle(dataset: Dataset, part: str, renamed: list[np.ndarray], random: np.random.Generator) -> None:
    """Rows of a part in another order, and ids under other numbers; three single-valued fields and a bag."""
    folder = dataset.directory
    order = random.permutation(dataset.splits[part].rows)
    for name in ("label", "dense"):
        path = folder / f"{part}.{name}.npy"
        np.save(path, np.load(path)[order])
    path = folder / f"{part}.categorical.npy"
    single = np.load(path)[order]
    np.save(path, np.stack([renamed[place][single[:, place]] for place in range(3)], axis=1).astype(np.int32))
    offsets, values = (np.load(folder / f"{part}.bag3.{name}.npy") for name in ("offsets", "values"))
    bags = [renamed[3][values[offsets[row] : offsets[row + 1]]] for row in order]
    np.save(folder / f"{part}.bag3.values.npy", np.concatenate(bags).astype(np.int32))
    np.save(folder / f"{part}.bag3.offsets.npy", np.cumsum([0, *map(len, bags)]))


def test_a_sample_is_like_the_whole_and_the_same_each_time(dataset: Dataset) -> None:
    whole, part = meta_features(dataset), meta_features(dataset, rows=500)
    assert part == meta_features(dataset, rows=500) != meta_features(dataset, rows=500, seed=1)
    assert part["rows"] == whole["rows"]
    assert part["zipf_exponent"] == pytest.approx(whole["zipf_exponent"], abs=0.2)
    assert part["bag_length"] == pytest.approx(whole["bag_length"], abs=0.3)
