"""Histories position by position, against loops over torch's own cells and lookups written out."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.counting import count_model
from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.families.sequence import HistoryEncoder, LstmLayer, RecurrentLayer, SequenceLayers, SequenceSpec
from shunter.models.positions import Positions
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.models.kernels import KERNELS

FEATURES = Features(
    dense=("d0",),
    categorical=(
        CategoricalFeature(name="item", rows=7),
        CategoricalFeature(name="seen", rows=7, multi_valued=True, length=3, table="item"),
        CategoricalFeature(name="tags", rows=5, multi_valued=True),
        CategoricalFeature(name="words", rows=9, multi_valued=True, length=4),
    ),
)
SPEC = model_spec(family="sequence", embedding_dim=4, encoder_widths=(6, 5), bottom_widths=(8,), top_widths=(8,))


def jagged(bags: list[list[list[int]]]) -> tuple[Tensor, Tensor]:
    """Values and offsets of bags given by field and sample."""
    flat = [bag for field in bags for bag in field]
    lengths = torch.tensor([0, *map(len, flat)])
    return torch.tensor([one for bag in flat for one in bag]).int(), lengths.cumsum(0).int()


@st.composite
def samples(draw: st.DrawFn) -> list[list[list[int]]]:
    batch = draw(st.integers(1, 4))
    return [
        [
            draw(st.lists(st.integers(0, field.rows - 1), min_size=least, max_size=field.length or most))
            for _ in range(batch)
        ]
        for field, least, most in zip(FEATURES.categorical, (1, 0, 0, 0), (1, 0, 3, 0), strict=True)
    ]


@settings(max_examples=20, deadline=None)
@given(bags=samples())
def test_each_id_of_a_history_has_a_bag_of_its_own(bags: list[list[list[int]]]) -> None:
    positions = Positions(FEATURES)
    values, offsets, lengths, weights = positions(*jagged(bags))
    assert weights is None
    assert positions.table_of == (0, 0, 0, 0, 1, 2, 2, 2, 2)
    expected: list[list[list[int]]] = []
    for field, column in zip(FEATURES.categorical, bags, strict=True):
        if field.length is None:
            expected.append(column)
        else:
            expected += [[bag[place : place + 1] for bag in column] for place in range(field.length)]
    expected_values, expected_offsets = jagged(expected)
    assert torch.equal(values, expected_values)
    assert torch.equal(offsets, expected_offsets)
    assert lengths.tolist() == [[len(seen), len(words)] for seen, words in zip(bags[1], bags[3], strict=True)]


def copy_weights(source: RecurrentLayer, target: nn.RNNCellBase) -> None:
    with torch.no_grad():
        target.weight_ih.copy_(source.input_gates.weight)
        target.bias_ih.copy_(source.input_gates.bias)
        target.weight_hh.copy_(source.state_gates.weight)
        target.bias_hh.copy_(source.state_gates.bias)


def test_an_lstm_begins_with_orthogonal_recurrence_and_an_open_forget_gate() -> None:
    spec = SequenceSpec(embedding_dim=4, encoder_widths=(6,), encoder="lstm")
    layers = build_model(spec, FEATURES, seed=3).layers
    layer = next(module for module in layers.modules() if isinstance(module, LstmLayer))
    for block in layer.state_gates.weight.chunk(4):
        torch.testing.assert_close(block @ block.T, torch.eye(6), rtol=0, atol=1e-5)
    expected = torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(6)
    assert torch.equal(layer.input_gates.bias + layer.state_gates.bias, expected)


@pytest.mark.parametrize("encoder", ["gru", "lstm"])
@pytest.mark.parametrize("output", ["last", "mean"])
def test_an_encoder_is_a_loop_of_torchs_cells_whatever_pads_it(encoder: str, output: str) -> None:
    torch.manual_seed(0)
    spec = SequenceSpec(
        embedding_dim=4,
        encoder_widths=(6, 5),
        encoder=encoder,  # type: ignore[arg-type]
        encoder_output=output,  # type: ignore[arg-type]
    )
    own = HistoryEncoder(spec)
    cells = [(nn.GRUCell if encoder == "gru" else nn.LSTMCell)(*sizes) for sizes in ((4, 6), (6, 5))]
    for layer, cell in zip(own.layers, cells, strict=True):
        assert isinstance(layer, RecurrentLayer)
        copy_weights(layer, cell)
    lengths = torch.tensor([0, 1, 3, 5])
    vectors = torch.randn(4, 5, 4)
    encoded = own(vectors, lengths)
    padding = torch.arange(5) >= lengths.unsqueeze(1)
    torch.testing.assert_close(own(vectors.masked_fill(padding.unsqueeze(2), 9.0), lengths), encoded)
    for sample, length, found in zip(vectors, lengths.tolist(), encoded, strict=True):
        states: list[Tensor] = []
        carried: list[Any] = [None, None]
        for vector in sample[:length]:
            state = vector.unsqueeze(0)
            for number, cell in enumerate(cells):
                carried[number] = cell(state, carried[number])
                state = carried[number] if encoder == "gru" else carried[number][0]
            states.append(state[0])
        if not states:
            assert not found.any()
            continue
        torch.testing.assert_close(found, states[-1] if output == "last" else torch.stack(states).mean(0))


@pytest.mark.parametrize("kernel", KERNELS)
def test_positions_learn_in_one_table_with_the_item(kernel: str) -> None:
    """After a step, every touched row has moved by row-wise Adagrad on its gradient summed over both of its uses."""
    if kernel == "fbgemm":
        pytest.importorskip("fbgemm_gpu")
    bags = [[[3], [2]], [[2, 3, 3], []], [[1, 1], [0]], [[8], [1, 2, 8]]]
    values, offsets = jagged(bags)
    dense = torch.randn(2, 1)
    model = build_model(SPEC, FEATURES, seed=1, kernel=kernel, embedding_learning=EmbeddingLearning(learning_rate=0.1))  # type: ignore[arg-type]
    before = model.embeddings.weight.clone().requires_grad_()
    starts = (0, 0, 7, 12)
    bagged = torch.zeros(2, 9, 4)
    first = (0, 1, 4, 5)
    for field, (column, start) in enumerate(zip(bags, starts, strict=True)):
        for sample, bag in enumerate(column):
            for rank, one in enumerate(bag):
                place = first[field] + (rank if FEATURES.categorical[field].length else 0)
                mask = torch.zeros(2, 9, 1)
                mask[sample, place] = 1
                bagged = bagged + mask * before[start + one]
    expected = model.layers(dense, bagged, torch.tensor([[3, 1], [0, 3]]))
    [gradient] = torch.autograd.grad(expected.sum(), before)
    logits = model(dense, values, offsets)
    torch.testing.assert_close(logits, expected)
    logits.sum().backward()
    step = gradient / (gradient.square().mean(1, keepdim=True).sqrt() + 1e-8)
    torch.testing.assert_close(model.embeddings.weight, before - 0.1 * step, atol=1e-5, rtol=1e-5)


def test_order_counts_and_pooling_does_not_see_it() -> None:
    samples_of = [jagged([[[1]], [seen], [[]], [[4]]]) for seen in ([2, 3], [3, 2])]
    scores = {}
    for family in ("sequence", "dnn"):
        spec = SPEC if family == "sequence" else model_spec(family="dnn", embedding_dim=4)
        model = build_model(spec, FEATURES, seed=0).eval()
        with torch.no_grad():
            scores[family] = [float(model(torch.zeros(1, 1), *sample)) for sample in samples_of]
    assert scores["dnn"][0] == pytest.approx(scores["dnn"][1], abs=1e-7)
    assert abs(scores["sequence"][0] - scores["sequence"][1]) > 1e-6


def test_recurrent_steps_are_counted() -> None:
    history = CategoricalFeature(name="seen", rows=50, multi_valued=True, length=10)
    spec = model_spec(family="sequence", embedding_dim=8, encoder_widths=(16,), top_widths=(4,))
    counts = count_model(spec, Features(dense=(), categorical=(history,)), ids_per_sample={"seen": 6.5})
    # Forward; backward twice as much, but for the state before the first position, whose gradient nobody needs.
    steps = 2 * 10 * 3 * 16 * (8 + 16) * 3 - 2 * 3 * 16 * 16
    top = 3 * 2 * (16 * 4 + 4)
    assert counts.matmul_flops_per_sample == steps + top
    assert counts.lookups_per_sample == 6.5
    assert counts.tables == 10
    assert counts.parameter_bytes == 4 * (50 * 8 + 3 * 16 * (8 + 16 + 2) + 16 * 4 + 4 + 4 + 1)


@pytest.mark.parametrize(
    ("options", "features", "message"),
    [
        ({}, Features(dense=(), categorical=FEATURES.categorical[:1]), "has none: name one under `sequences`"),
        ({"encoder": "rnn"}, FEATURES, "'rnn': use gru or lstm"),
        ({"encoder_output": "first"}, FEATURES, "encoder_output 'first'"),
        ({"encoder_widths": ()}, FEATURES, "widths of layers in encoder_widths"),
        ({"encoder_widths": (4, 0)}, FEATURES, "widths of layers in encoder_widths"),
        (
            {},
            Features(dense=(), categorical=FEATURES.categorical[1:]),
            "'seen' shares the embedding table of 'item': list it",
        ),
    ],
)
def test_what_cannot_be_built_is_named(options: dict, features: Features, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        build_model(model_spec(family="sequence", **options), features)


def test_tables_in_a_file_are_refused() -> None:
    with pytest.raises(RequestError, match="cannot be stored in a file"):
        build_model(SPEC, FEATURES, cache=EmbeddingCache(rows=8, window_batches=2))


def test_a_history_alone_is_enough() -> None:
    features = Features(dense=(), categorical=FEATURES.categorical[3:])
    model = build_model(SPEC, features)
    assert isinstance(model.layers, SequenceLayers)
    assert model(torch.zeros(2, 0), *jagged([[[1, 2], []]])).shape == (2,)
    with_dense = Features(dense=("d0",), categorical=FEATURES.categorical[3:])
    assert build_model(SPEC, with_dense)(torch.zeros(2, 1), *jagged([[[1, 2], []]])).shape == (2,)
