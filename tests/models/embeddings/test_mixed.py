"""Tables of several widths and with shared rows: both kernels against loops, and against tables of one width."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.errors import RequestError
from shunter.model_families import MODEL_FAMILIES
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.embeddings.mixed import MixedEmbeddings
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.embeddings.role import EPSILON
from shunter.models.registry import build_model, check_spec, model_spec
from shunter.models.spec import CategoricalFeature, Features, TableShape, rows_kept
from tests.models.kernels import KERNELS

CPU = torch.device("cpu")
DIM = 12
FEATURES = Features(
    dense=("price",),
    categorical=(
        CategoricalFeature(name="user", rows=40),
        CategoricalFeature(name="item", rows=30),
        CategoricalFeature(name="tags", rows=7, multi_valued=True),
    ),
)
SPEC = model_spec(
    embedding_dim=8, bottom_widths=(8,), top_widths=(8,), table_dims=(8, 4, 4), table_shares=(0.1, 1.0, 1.0)
)


def build(shapes: list[TableShape], kernel: str, **options: float) -> MixedEmbeddings:
    tables = MixedEmbeddings(shapes, DIM, learning_rate=0.1, device=CPU, kernel=kernel)  # type: ignore[arg-type]
    tables.l2 = options.get("l2", 0.0)
    tables.initialise(torch.Generator().manual_seed(3))
    return tables


def as_tensors(bags: list[list[list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of `bags[table][sample]`, laid out for the lookup."""
    flat = [bag for table in bags for bag in table]
    values = torch.tensor([i for bag in flat for i in bag], dtype=torch.int32)
    return values, torch.tensor(np.cumsum([0, *map(len, flat)]), dtype=torch.int32)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[TableShape], list[list[list[int]]]]:
    """Tables of any ids, rows and widths, and the ids of a batch."""
    shapes = [
        TableShape(ids=ids, rows=draw(st.integers(1, ids)), width=draw(st.sampled_from((4, 8, 12))))
        for ids in draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    ]
    samples = draw(st.integers(1, 4))
    bags = [
        draw(st.lists(st.lists(st.integers(0, s.ids - 1), max_size=3), min_size=samples, max_size=samples))
        for s in shapes
    ]
    return shapes, bags


def step_by_hand(
    tables: MixedEmbeddings, bags: list[list[list[int]]], gradient: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Forward and one exact row-wise Adagrad update from an empty state, in loops: output and tables after it."""
    weights = [table.double().numpy().copy() for table in tables.tables]
    output = np.zeros((len(bags[0]), len(bags), DIM))
    for table, (weight, shape) in enumerate(zip(weights, tables.shapes, strict=True)):
        before, row_gradients = weight.copy(), np.zeros_like(weight)
        for sample, bag in enumerate(bags[table]):
            for i in bag:
                output[sample, table, : shape.width] += before[i % shape.rows]
                row_gradients[i % shape.rows] += gradient[sample, table, : shape.width]
        scale = 0.1 / (np.sqrt((row_gradients**2).mean(1, keepdims=True)) + EPSILON)
        weights[table] = weight - scale * row_gradients
    return output, weights


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=20, deadline=None)
@given(batch=batches(), seed=st.integers(0, 99))
def test_a_step_is_the_one_in_loops(
    kernel: str, batch: tuple[list[TableShape], list[list[list[int]]]], seed: int
) -> None:
    shapes, bags = batch
    tables = build(shapes, kernel)
    gradient = np.random.default_rng(seed).normal(size=(len(bags[0]), len(bags), DIM))
    expected, weights = step_by_hand(tables, bags, gradient)
    pooled = tables(*as_tensors(bags))
    np.testing.assert_allclose(pooled.detach().numpy(), expected, atol=1e-6)
    for place, shape in enumerate(shapes):
        assert not pooled[:, place, shape.width :].any(), "behind a narrow row there are zeros"
    pooled.backward(torch.from_numpy(gradient).float())
    for table, weight in zip(tables.tables, weights, strict=True):
        np.testing.assert_allclose(table.numpy(), weight, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_tables_of_one_width_with_all_rows_are_bitwise_the_ordinary_ones(kernel: str) -> None:
    rows, bags = [5, 3], [[[0, 4], [2]], [[1], []]]
    mixed = build([TableShape(ids=n, rows=n, width=DIM) for n in rows], kernel, l2=0.01)
    plain = build_embeddings(rows, DIM, learning_rate=0.1, device=CPU, kernel=kernel)  # type: ignore[arg-type]
    plain.l2 = 0.01
    plain.initialise(torch.Generator().manual_seed(3))
    for tables in (mixed, plain):
        for _ in range(2):
            tables(*as_tensors(bags)).square().sum().backward()
    assert torch.equal(mixed.weight.view(-1, DIM), plain.weight)
    assert torch.equal(mixed.adagrad_sum, plain.adagrad_sum)


@pytest.mark.parametrize("kernel", KERNELS)
def test_weight_decay_counts_a_shared_row_as_often_as_its_ids(kernel: str) -> None:
    """As in a table that has these rows and is given the remainders."""
    shapes = [TableShape(ids=9, rows=4, width=8), TableShape(ids=3, rows=3, width=12)]
    bags = [[[8, 0], [4], [7]], [[1], [1], []]]
    shared = build(shapes, kernel, l2=0.5)
    given = build([shapes[0]._replace(ids=4), shapes[1]], kernel, l2=0.5)
    shared(*as_tensors(bags)).sum().backward()
    given(*as_tensors([[[i % 4 for i in bag] for bag in bags[0]], bags[1]])).sum().backward()
    assert torch.equal(shared.weight, given.weight)


def test_kernels_keep_their_rows_in_the_same_order() -> None:
    shapes = [TableShape(6, 3, 4), TableShape(4, 4, 8), TableShape(5, 5, 8), TableShape(2, 2, 4)]
    first, *others = kernels = [build(shapes, kernel) for kernel in KERNELS]
    for tables in others:
        assert torch.equal(tables.weight, first.weight)
        tables.load_state_dict(first.state_dict())
    bags = [[[5], [1]], [[3], [0]], [[2], [4]], [[1], [1]]]
    for _ in range(3):
        for tables in kernels:
            tables(*as_tensors(bags)).square().sum().backward()
    for tables in others:
        assert torch.allclose(tables.weight, first.weight, atol=1e-6)
        assert torch.allclose(tables.adagrad_sum, first.adagrad_sum, atol=1e-6)


def test_a_share_is_rounded_up_and_leaves_at_least_one_row() -> None:
    assert [rows_kept(30, 0.1), rows_kept(31, 0.1), rows_kept(5, 0.001), rows_kept(1_000, 1.0)] == [3, 4, 1, 1_000]


@pytest.mark.parametrize("family", MODEL_FAMILIES.names)
def test_models_of_mixed_tables_score_alike_after_they_were_stored(family: str, tmp_path: Path) -> None:
    features = FEATURES
    if MODEL_FAMILIES.capability(family, "reads_positions"):
        history = CategoricalFeature(name="seen", rows=30, multi_valued=True, length=4, table="item")
        features = replace(FEATURES, categorical=(*FEATURES.categorical[:2], history, FEATURES.categorical[2]))
    dims = SPEC.table_dims if MODEL_FAMILIES.capability(family, "mixes_widths") else ()
    hidden = {} if MODEL_FAMILIES.capability(family, "has_hidden_layers") else {"bottom_widths": (), "top_widths": ()}
    spec = model_spec(**{**SPEC.to_dict(), "family": family, "table_dims": dims, **hidden})
    model = build_model(spec, features, seed=1)
    bags = [[[i * 7 % field.rows, 0][: 1 + field.multi_valued] for i in range(6)] for field in features.categorical]
    inputs = torch.randn(6, 1), *as_tensors(bags)
    model(*inputs).square().sum().backward()
    save_model(model.eval(), tmp_path)
    stored = json.loads((tmp_path / "model.json").read_text())["members"][0]
    assert stored["table_shares"] == [0.1, 1.0, 1.0]
    assert torch.equal(load_model(tmp_path)(*inputs), model(*inputs))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table_dims": (8, 4)}, "2 values, but the data has 3 embedding tables"),
        ({"table_dims": (8, 4, 6)}, "The width 6 in table_dims"),
        ({"table_dims": (8, 4, 16)}, "The width 16 in table_dims"),
        ({"table_shares": (1.0, 0.5, 0.0)}, "The value 0.0 in table_shares"),
        ({"table_shares": (1.0, 1.5, 1.0)}, "The value 1.5 in table_shares"),
        ({"family": "deepfm"}, "The option table_dims does nothing"),
    ],
)
def test_tables_that_cannot_be_built_are_refused(options: dict, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        check_spec(model_spec(**{**SPEC.to_dict(), **options}), FEATURES)


def test_a_cache_is_refused(tmp_path: Path) -> None:
    cache = EmbeddingCache(rows=8, window_batches=2, directory=tmp_path)
    with pytest.raises(RequestError, match="in a file need one width"):
        build_model(SPEC, FEATURES, cache=cache)
