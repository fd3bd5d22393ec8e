"""Rows begin with the vectors that a data set brings, in tables of every kind; the others are drawn as ever."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.given import FOLDER, GivenVectors, save_given
from shunter.engine.data.vectors import load_pretrained_vectors, projected
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.engine.loop.test_sequence import EXECUTION, ITEMS, RATES, write_sessions

FEATURES = Features(
    dense=(), categorical=(CategoricalFeature(name="user", rows=5), CategoricalFeature(name="item", rows=7))
)


def dataset_with(folder: Path, vectors: np.ndarray, *, is_frozen: bool = False) -> Dataset:
    """A data set of which only the features and the vectors of items are there."""
    found = GivenVectors(field="item", table=1, width=vectors.shape[1], is_frozen=is_frozen, given=4, ids=6, unused=0)
    save_given(folder / FOLDER, found, vectors.astype(np.float32))
    return Dataset(
        name="few",
        directory=folder,
        fingerprint="0",
        features=FEATURES,
        splits={},
        split_by="hash",
        fields=(),
        quarantined_rows=0,
    )


def some_vectors(width: int) -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(7, width))
    vectors[[0, 3]] = np.nan
    return vectors


@pytest.mark.parametrize("dims", [(), (8, 4)])
@pytest.mark.parametrize("width", [2, 4, 8, 20])
def test_given_rows_are_given_and_the_others_drawn(tmp_path: Path, width: int, dims: tuple[int, ...]) -> None:
    spec = replace(model_spec("dnn", embedding_dim=8, top_widths=(4,)), table_dims=dims)
    vectors = some_vectors(width)
    dataset = dataset_with(tmp_path, vectors)
    model, untouched = (build_model(spec, FEATURES, seed=1) for _ in range(2))

    load_pretrained_vectors(model.embeddings, spec, dataset)

    (users, items), (drawn_users, drawn_items) = model.embeddings.tables, untouched.embeddings.tables
    assert torch.equal(users, drawn_users)
    assert torch.equal(items[[0, 3]], drawn_items[[0, 3]])
    own = (dims or (8, 8))[1]
    shown = projected(torch.tensor(vectors, dtype=torch.float32), own)
    rows = [1, 2, 4, 5, 6]
    assert torch.equal(items[rows, : shown.shape[1]], shown[rows])
    assert torch.equal(items[rows, shown.shape[1] :], drawn_items[rows, shown.shape[1] :])


def test_weights_that_are_no_vectors_are_left_alone(tmp_path: Path) -> None:
    spec = model_spec("lr", embedding_dim=4)
    model, untouched = (build_model(spec, FEATURES, seed=1) for _ in range(2))
    load_pretrained_vectors(model.embeddings, spec, dataset_with(tmp_path, some_vectors(4)))
    assert torch.equal(model.embeddings.weight, untouched.embeddings.weight)


def test_a_frozen_table_comes_out_of_training_as_it_was_given(tmp_path: Path) -> None:
    dataset = write_sessions(tmp_path, 900)
    vectors = np.random.default_rng(0).normal(0, 0.1, (ITEMS, 12)).astype(np.float32)
    vectors[0] = np.nan
    found = GivenVectors(field="item", table=0, width=12, is_frozen=True, given=20, ids=20, unused=0)
    save_given(tmp_path / FOLDER, found, vectors)
    spec = model_spec("dnn", embedding_dim=8, top_widths=(8,))
    job = TrainingJob(dataset, spec, replace(RATES, embedding_l2=1e-3), EXECUTION, Schedule(max_epochs=1, seed=0))

    (items,) = train(job).model.embeddings.tables

    assert torch.equal(items[1:], projected(torch.from_numpy(vectors), 8)[1:])


@given(st.integers(1, 6), st.integers(0, 1_000))
def test_projection_keeps_as_much_of_the_vectors_as_any_can(width: int, seed: int) -> None:
    """Against the singular value decomposition: what is lost is what its last directions hold."""
    vectors = torch.randn(12, 6, generator=torch.Generator().manual_seed(seed))
    kept = projected(vectors, width)
    values = torch.linalg.svdvals(vectors.double())
    assert kept.shape == (12, width)
    assert float((kept.double() ** 2).sum()) == pytest.approx(float((values[:width] ** 2).sum()), rel=1e-4)
