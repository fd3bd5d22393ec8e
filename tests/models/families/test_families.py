"""What holds for every family, and each family against a slow computation from its weights alone."""

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.errors import RequestError
from shunter.model_families import MODEL_FAMILIES, reads_positions
from shunter.models.counting import count_flops_per_sample, count_model, count_parameter_bytes
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.ensemble import Ensemble
from shunter.models.families.deepfm import DeepfmLayers
from shunter.models.families.dhen import DhenLayer, DhenSpec
from shunter.models.families.din import DinSpec
from shunter.models.families.finalmlp import BilinearFusion, FeatureGate, FinalmlpLayers
from shunter.models.interactions import (
    DLRM_INTERACTIONS,
    INTERACTIONS,
    Attention,
    Convolution,
    Cross,
    DlrmInteraction,
    Dot,
    FactorisationMachine,
    InteractionOptions,
    PairNumbers,
    dlrm_interaction,
)
from shunter.models.layers import BatchNorm, CrossNetwork
from shunter.models.number_bins import begin_bins
from shunter.models.output_layer import OutputLayer
from shunter.models.registry import build_model, layer_inputs, model_spec
from shunter.models.spec import CategoricalFeature, Features, ModelSpec
from shunter.registry import Entry
from shunter.search.space.settings import SearchSpace, family_options
from shunter.settings import PROJECT_ROOT
from tests.models.families.test_dlrm import features_of, inputs_of

ALL_INTERACTIONS = tuple(INTERACTIONS)
# Every family, and what of its options changes the computation.
SPECS = {
    **{family: model_spec(family=family, embedding_dim=8) for family in MODEL_FAMILIES.names},
    "dnn normalised": model_spec(family="dnn", batch_norm=True, dropout=0.2),
    "dnn of structured dropout": model_spec(
        family="dnn", top_widths=(128, 96), batch_norm=True, dropout=0.5, dropout_kind="structured"
    ),
    "dlrm normalised": model_spec(family="dlrm", batch_norm=True),
    # Four vectors have six pairs, more numbers than one vector of four holds and less than one of eight.
    **{f"dlrm of {name}": model_spec(interaction=name, embedding_dim=4) for name in ("fm", "cross", "attention")},
    "dlrm of linear": model_spec(interaction="linear", embedding_dim=8),
    "dcnv2 low rank": model_spec(family="dcnv2", cross_rank=4),
    "dcnv2 stacked": model_spec(family="dcnv2", cross_structure="stacked", batch_norm=True),
    "dcnv2 without deep part": model_spec(family="dcnv2", top_widths=()),
    "finalmlp gated": model_spec(
        family="finalmlp", first_gate=("c0",), second_gate=("c1", "b0"), fusion_heads=4, second_widths=(32, 16)
    ),
    "autoint without deep part": model_spec(family="autoint", attention_layers=2, attention_heads=4, top_widths=()),
    "masknet serial": model_spec(family="masknet", mask_structure="serial", mask_expansion=0.5, top_widths=()),
    "gdcn stacked": model_spec(family="gdcn", cross_structure="stacked", batch_norm=True),
    "wukong deep": model_spec(family="wukong", interaction_layers=3, machine_widths=(), embedding_dim=8),
    "dhen sum": model_spec(family="dhen", interactions=ALL_INTERACTIONS, interaction_ensemble="sum", embedding_dim=8),
    "dhen weighted": model_spec(
        family="dhen", interactions=ALL_INTERACTIONS, interaction_ensemble="weighted", embedding_dim=8
    ),
    "dhen concat": model_spec(family="dhen", interactions=ALL_INTERACTIONS, interaction_vectors=3, embedding_dim=8),
    "sequence of two layers": model_spec(
        family="sequence", encoder="lstm", encoder_widths=(8, 4), encoder_output="mean", batch_norm=True
    ),
    "sequence of structured dropout": model_spec(
        family="sequence", encoder="lstm", encoder_widths=(128,), encoder_dropout=0.5, dropout_kind="structured"
    ),
    "din of softmax": model_spec(family="din", activation_widths=(), activation_softmax=True),
    "bst causal": model_spec(family="bst", transformer_layers=2, transformer_causal=True, dropout=0.1),
    "bst of the candidate": model_spec(family="bst", transformer_output="candidate", attention_heads=1),
    "hstu of one layer": model_spec(family="hstu", hstu_layers=1, relative_bias=False, dropout=0.1),
    "hstu of other widths": model_spec(family="hstu", attention_heads=3, query_width=5, value_width=4, embedding_dim=8),
    "ple of two levels": model_spec(family="ple", extraction_levels=2, label_experts=1, shared_experts=1),
    **{
        f"{family} of numbers": model_spec(family=family, numeric_embedding="vector", embedding_dim=8)
        for family in ("deepfm", "dcnv2", "autoint")
    },
    **{f"{family} of bins": model_spec(family=family, numeric_bins=3) for family in ("dlrm", "dmt", "lr", "fm", "din")},
    "dcnv2 of vectors of bins": model_spec(family="dcnv2", numeric_embedding="vector", numeric_bins=2),
    "finalmlp gated with numbers": model_spec(family="finalmlp", first_gate=("c0",), numeric_embedding="vector"),
    "dmt of named towers": model_spec(
        family="dmt",
        tower_fields=(("b0",), ("c1", "c0")),
        tower_kind="dlrm",
        tower_field_vectors=1,
        tower_dim=8,
        batch_norm=True,
    ),
    "dmt of two towers": model_spec(family="dmt", towers=2, tower_vectors=1, tower_cross_layers=2),
}
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
# Counting a model traces four steps, which takes more than all else here; one of them tells the products of a variant.
every_counted_spec = pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, id=name, marks=() if name in MODEL_FAMILIES.names else pytest.mark.long)
        for name, spec in SPECS.items()
    ],
)
every_variant = pytest.mark.parametrize(
    "spec", [pytest.param(spec, id=name) for name, spec in SPECS.items() if name not in MODEL_FAMILIES.names]
)
# The multi-valued field has an order too, which matters to the families that read histories position by position.
BAG = CategoricalFeature(name="b0", rows=7, multi_valued=True, length=3)
FEATURES = Features(dense=("d0", "d1"), categorical=(*features_of(2, 2).categorical, BAG))


@every_spec
@settings(max_examples=3, deadline=None)
@given(order=st.permutations(range(6)))
def test_samples_are_scored_each_by_itself(spec: ModelSpec, order: list[int]) -> None:
    model = build_model(spec, FEATURES, seed=1).eval()
    with torch.no_grad():
        inputs = model.layer_inputs(*inputs_of(FEATURES, batch=6))
        logits = model.layers(*inputs)
        reordered = model.layers(*(part[order] for part in inputs))
        torch.testing.assert_close(reordered, logits[order], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(model.layers(*(part[:1] for part in inputs)), logits[:1], atol=1e-5, rtol=1e-5)


@every_spec
def test_gradients_reach_every_parameter_and_every_touched_row(spec: ModelSpec) -> None:
    model = build_model(spec, FEATURES).train()
    unseen = set()
    if isinstance(spec, DinSpec) and spec.activation_softmax:  # which does not see what all its inputs share
        unseen = {f"encoders.0.activation.{2 * len(spec.activation_widths)}.bias"}
    for name, parameter in model.layers.named_parameters():
        if name.endswith("shares"):  # begin at 0, which lets nothing through to what they are shares of
            parameter.data.fill_(1.0)
    before = model.embeddings.weight.clone()
    dense, values, offsets = inputs_of(FEATURES, batch=16)
    begin_bins(model.layers, dense.numpy())
    model(dense, values, offsets).square().sum().backward()
    for name, parameter in model.layers.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name in unseen, name
    touched = set(values[:16].tolist()) | {7 + int(i) for i in values[16:32]} | {14 + int(i) for i in values[32:]}
    assert set((model.embeddings.weight != before).any(1).nonzero().flatten().tolist()) == touched


def flops_of_a_real_step(layers: nn.Module, spec: ModelSpec) -> float:
    """Return the operations of the matrix products of a sample, as torch counts them."""
    batch = 32
    with FlopCounterMode(display=False) as counter:
        layers(*layer_inputs(spec, FEATURES, batch, "cpu")).sum().backward()
    return counter.get_total_flops() / batch


@every_counted_spec
def test_flops_are_those_that_torch_counts_in_a_real_step(spec: ModelSpec) -> None:
    layers = build_model(spec, FEATURES).layers.train()
    counts = count_model(spec, FEATURES)
    assert counts.matmul_flops_per_sample == flops_of_a_real_step(layers, spec)
    assert counts.dense_parameter_bytes == 4 * sum(parameter.numel() for parameter in layers.parameters())


@every_variant
def test_flops_and_weights_of_a_variant_are_those_of_a_real_step(spec: ModelSpec) -> None:
    layers = build_model(spec, FEATURES).layers.train()
    assert count_flops_per_sample(spec, FEATURES) == flops_of_a_real_step(layers, spec)
    dense_bytes = count_parameter_bytes(spec, FEATURES) - EmbeddingTables.count_bytes(spec.tables(FEATURES)).weights
    assert dense_bytes == 4 * sum(parameter.numel() for parameter in layers.parameters())


@every_spec
def test_bfloat16_scores_like_float32_and_returns_float32(spec: ModelSpec) -> None:
    model = build_model(spec, FEATURES, seed=3).eval()
    inputs = inputs_of(FEATURES, batch=64)
    with torch.no_grad():
        exact = model(*inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = model(*inputs)
    assert rounded.dtype == torch.float32
    assert (rounded - exact).abs().mean() < 0.03 * max(1.0, exact.abs().mean().item())


@every_spec
def test_a_saved_model_scores_bit_by_bit_as_before(spec: ModelSpec, tmp_path: Path) -> None:
    inputs = inputs_of(FEATURES, batch=32)
    model = build_model(spec, FEATURES, seed=3).train()
    model(*inputs).square().sum().backward()  # moves the statistics of a batch normalisation
    ensemble = Ensemble([model.eval(), build_model(model_spec(), FEATURES).eval()], [2, 1]).eval()
    save_model(ensemble, tmp_path)
    with torch.no_grad():
        assert torch.equal(load_model(tmp_path)(*inputs), ensemble(*inputs))
    assert model_spec(**spec.to_dict()) == spec


@every_spec
def test_one_field_alone_is_enough(spec: ModelSpec) -> None:
    if any(getattr(spec, option, None) for option in ("first_gate", "tower_fields", "towers")):
        pytest.skip("it names other fields, or more towers")
    if reads_positions(spec.family):
        pytest.skip("it needs a history: tests/models/families/test_sequence.py")
    features = Features(dense=(), categorical=(CategoricalFeature(name="c0", rows=5),))
    logits = build_model(spec, features).train()(torch.zeros(2, 0), torch.tensor([0, 4]).int(), torch.arange(3).int())
    assert logits.shape == (2,)


def test_deepfm_is_a_factorisation_machine_and_a_deep_network() -> None:
    layers = build_model(model_spec(family="deepfm", embedding_dim=4), features_of(0, 3), seed=2).layers.eval()
    assert isinstance(layers, DeepfmLayers)
    pooled = torch.randn(5, 3, 4)
    for sample, logit in zip(pooled, layers(torch.zeros(5, 0), pooled), strict=True):
        factors, weights = sample[:, :3], sample[:, 3]
        pairs = torch.stack([factors[i] @ factors[j] for i, j in combinations(range(3), 2)])
        torch.testing.assert_close(logit, weights.sum() + pairs.sum() + layers.deep(factors.flatten())[0])


def test_each_number_is_a_vector_times_its_value_in_a_factorisation_machine() -> None:
    spec = model_spec(family="deepfm", embedding_dim=4, numeric_embedding="vector")
    layers = build_model(spec, features_of(2, 1), seed=2).layers.eval()
    assert isinstance(layers, DeepfmLayers)
    assert layers.vectors.bottom is None
    assert layers.vectors.numbers is not None
    dense, pooled = torch.randn(5, 2), torch.randn(5, 1, 4)
    for values, sample, logit in zip(dense, pooled, layers(dense, pooled), strict=True):
        vectors = [values[0] * layers.vectors.numbers[0], values[1] * layers.vectors.numbers[1], sample[0]]
        pairs = sum(vectors[i][:3] @ vectors[j][:3] for i, j in combinations(range(3), 2))
        deep = layers.deep(torch.cat([vector[:3] for vector in vectors]))[0]
        torch.testing.assert_close(logit, sum(vector[3] for vector in vectors) + pairs + deep)


def test_a_gate_finds_its_field_behind_the_vectors_of_numbers() -> None:
    for kind, place in (("mlp", 1), ("vector", 2)):
        spec = model_spec(family="finalmlp", first_gate=("c0",), numeric_embedding=kind)
        layers = build_model(spec, FEATURES).layers
        assert isinstance(layers, FinalmlpLayers)
        assert next(iter(layers.gates)).context == (place,)


@pytest.mark.parametrize("rank", [None, 2])
def test_cross_layers_equal_those_of_torchrec(rank: int | None) -> None:
    crossnet = pytest.importorskip("torchrec.modules.crossnet")
    own = CrossNetwork(6, 3, rank)
    first = torch.randn(4, 6, requires_grad=True)
    theirs = crossnet.CrossNet(6, 3) if rank is None else crossnet.LowRankCrossNet(6, 3, rank)
    with torch.no_grad():
        for number, layer in enumerate(own.cross):
            if isinstance(layer, nn.Sequential):
                theirs.V_kernels[number].copy_(layer[0].weight)
                theirs.W_kernels[number].copy_(layer[1].weight)
                theirs.bias[number].copy_(layer[1].bias)
            else:
                assert isinstance(layer, nn.Linear)
                theirs.kernels[number].copy_(layer.weight)
                theirs.bias[number].copy_(layer.bias.unsqueeze(1))
    torch.testing.assert_close(own(first), theirs(first))
    [gradient] = torch.autograd.grad(own(first).sum(), first)
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs(first).sum(), first)[0])


def test_finalmlp_fuses_its_streams_head_by_head() -> None:
    spec = model_spec(family="finalmlp", embedding_dim=4, top_widths=(6,), second_widths=(9,), fusion_heads=3)
    layers = build_model(spec, features_of(0, 2), seed=2).layers.eval()
    assert isinstance(layers, FinalmlpLayers)
    pooled = torch.randn(5, 2, 4)
    flat, fusion = pooled.flatten(1), layers.fusion
    assert isinstance(fusion, BilinearFusion)
    first, second = (stream(flat) for stream in layers.streams)  # gates without context start at one
    for b, logit in enumerate(layers(torch.zeros(5, 0), pooled)):
        expected = fusion.first(first[b]) + fusion.second(second[b])
        for head, matrix in enumerate(fusion.bilinear):
            for i in range(2):
                for j in range(3):
                    expected = expected + first[b, 2 * head + i] * matrix[i, j] * second[b, 3 * head + j]
        torch.testing.assert_close(logit, expected[0], rtol=1e-4, atol=1e-5)


def test_a_gate_weighs_by_its_own_fields_only() -> None:
    gate = FeatureGate(width=12, dim=4, context=[1], hidden_widths=(5,))
    vectors = torch.ones(2, 3, 4)
    vectors[1, 0] = vectors[1, 2] = 7.0  # what is not looked at
    weights = gate(vectors) / vectors.flatten(1)
    torch.testing.assert_close(weights[0], weights[1])
    assert ((weights > 0) & (weights < 2)).all()
    vectors[1, 1] = -3.0
    assert not torch.allclose(gate(vectors)[1] / vectors.flatten(1)[1], weights[1])


DHEN = InteractionOptions(embedding_dim=4, interaction_vectors=3)


def test_attention_is_the_encoder_layer_of_torch() -> None:
    own = Attention(DHEN, vectors=5)
    theirs = nn.TransformerEncoderLayer(4, DHEN.attention_heads, 16, dropout=0.0, batch_first=True)
    attention = theirs.self_attn
    assert attention.in_proj_weight is not None
    pairs = (
        (attention.in_proj_weight, own.project_in.weight),
        (attention.in_proj_bias, own.project_in.bias),
        (attention.out_proj.weight, own.project_out.weight),
        (attention.out_proj.bias, own.project_out.bias),
    )
    with torch.no_grad():
        for target, source in pairs:
            target.copy_(source)
    theirs.linear1.load_state_dict(own.feed_forward[0].state_dict())
    theirs.linear2.load_state_dict(own.feed_forward[2].state_dict())
    vectors = torch.randn(2, 5, 4)
    torch.testing.assert_close(own.encode(vectors), theirs(vectors))


def test_convolution_is_that_of_torch() -> None:
    own = Convolution(DHEN, vectors=5)
    picture = nn.Conv2d(1, DHEN.convolution_channels, 3, padding="same")
    join = nn.Conv2d(DHEN.convolution_channels, 1, 1)
    with torch.no_grad():
        picture.weight.copy_(own.filters.weight.view_as(picture.weight))
        join.weight.copy_(own.join.weight.view_as(join.weight))
    picture.bias, join.bias = own.filters.bias, own.join.bias
    vectors = torch.randn(2, 5, 4)
    expected = own.mix(join(picture(vectors.unsqueeze(1)).relu()).squeeze(1))
    torch.testing.assert_close(own(vectors), expected)


def test_dot_and_cross_follow_their_formulas() -> None:
    dot, cross = Dot(DHEN, vectors=3), Cross(DHEN, vectors=3)
    sample = torch.randn(3, 4)
    products = [sample[i] @ sample[j] for i, j in ((1, 0), (2, 0), (2, 1))]
    expected = dot.project(torch.cat([torch.stack(products), sample.flatten()])).view(3, 4)
    torch.testing.assert_close(dot(sample.unsqueeze(0))[0], expected)
    crossed = sample * cross.cross(sample.flatten()).view(3, 4)
    torch.testing.assert_close(cross(sample.unsqueeze(0))[0], cross.mix.weight @ crossed)


@pytest.mark.parametrize("name", DLRM_INTERACTIONS)
@pytest.mark.parametrize("vectors", [2, 4, 7])
def test_interactions_of_a_dlrm_can_be_exchanged(name: DlrmInteraction, vectors: int) -> None:
    module = dlrm_interaction(name, 8, vectors)
    assert module(torch.randn(3, vectors, 8)).shape == (3, vectors * (vectors - 1) // 2)


def test_the_interaction_of_a_factorisation_machine_adds_the_products_of_all_pairs() -> None:
    machine = FactorisationMachine(4, vectors=4)
    sample = torch.randn(4, 4)
    products = torch.stack([sample[i] * sample[j] for i, j in combinations(range(4), 2)]).sum(0)
    torch.testing.assert_close(machine(sample.unsqueeze(0))[0], machine.project(products))


def test_linear_and_cross_in_a_dlrm_are_the_modules_of_dhen() -> None:
    vectors = torch.randn(2, 5, 4)
    for name in ("linear", "cross"):
        own = PairNumbers(4, vectors=5, name=name)  # ten pairs are two vectors of four numbers, and half of one
        assert own.module(vectors).shape == (2, 3, 4)
        torch.testing.assert_close(own(vectors), own.module(vectors).flatten(1)[:, :10])


def test_a_layer_adds_the_shortcut_and_normalises_each_vector() -> None:
    layer = DhenLayer(DhenSpec(embedding_dim=4, interaction_vectors=3, interactions=("linear",)), vectors=3)
    vectors = torch.randn(2, 3, 4)
    linear = layer.interactions["linear"]
    with torch.no_grad():
        dict(linear.named_parameters())["weight"].copy_(torch.eye(3))
    torch.testing.assert_close(layer(vectors), nn.functional.layer_norm(2 * vectors, (4,)))


@pytest.mark.parametrize(("ensemble", "count"), [("concat", 15), ("sum", 3), ("weighted", 3)])
def test_modules_of_a_layer_are_joined_as_asked(ensemble: str, count: int) -> None:
    spec = DhenSpec(
        embedding_dim=4,
        interaction_vectors=3,
        interactions=ALL_INTERACTIONS,
        interaction_ensemble=ensemble,  # type: ignore[arg-type]
    )
    layer = DhenLayer(spec, vectors=7)
    if layer.weights is not None:
        nn.init.normal_(layer.weights)
    weights = torch.ones(5) if layer.weights is None else layer.weights
    vectors = torch.randn(2, 7, 4)
    seen = [weight * module(vectors) for weight, module in zip(weights, layer.interactions.values(), strict=True)]
    joined = torch.cat(seen, dim=1) if ensemble == "concat" else sum(seen)
    assert layer.count == count
    torch.testing.assert_close(layer(vectors), nn.functional.layer_norm(joined + layer.shortcut(vectors), (4,)))


def test_a_batch_of_one_is_normalised_by_what_was_seen_before() -> None:
    layer = BatchNorm(3)
    layer(torch.randn(50, 3) * 2 + 1)
    before, one = {name: value.clone() for name, value in layer.state_dict().items()}, torch.randn(1, 3)
    scored = layer.train()(one)
    torch.testing.assert_close(scored, layer.eval()(one))
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_the_score_is_computed_in_float32_whatever_the_precision() -> None:
    layer, inputs = OutputLayer(64, 1), torch.randn(8, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scored, rounded = layer(inputs), nn.functional.linear(inputs, layer.weight, layer.bias)
    assert torch.equal(scored, layer(inputs))
    assert not torch.equal(scored, rounded.float())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "dcn"}, r"'dcn': use 'dcnv2', or another of autoint, bst, dcnv2"),
        ({"family": "quantum"}, r"'quantum': use one of autoint, bst, dcnv2"),
        ({"family": "dlrm", "cross_layers": 4}, r"cross_layers does nothing.*'dlrm'.*dcnv2"),
        ({"family": "finalmlp", "fusion_heads": 3}, "fusion_heads = 3 must divide"),
        ({"family": "finalmlp", "first_gate": ("c9",)}, "unknown field 'c9': use one of b0, c0, c1"),
        ({"interaction": "dott"}, "Unknown interaction 'dott' of the model dlrm: use 'dot'"),
        ({"family": "dnn", "interaction": "fm"}, "interaction does nothing.*'dnn'"),
        (
            {"family": "autoint", "attention_heads": 3},
            "attention_width must be a multiple of attention_heads = 3, but is 32",
        ),
        ({"family": "autoint", "attention_layers": 0}, "attention_layers = 0 has no interactions"),
        ({"family": "masknet", "mask_structure": "tree"}, "'tree': use parallel or serial"),
        ({"family": "masknet", "mask_blocks": 0}, "mask_blocks = 0 has no blocks"),
        ({"family": "masknet", "mask_expansion": 0.0}, "mask_expansion, is 0.0"),
        ({"family": "dlrm", "numeric_embedding": "vector"}, "numeric_embedding does nothing.*'dlrm'.*dcnv2"),
        ({"family": "dnn", "numeric_embedding": "bins"}, "'bins': use mlp or vector"),
        ({"family": "mmoe", "experts": 1}, "experts = 1 has no experts to mix"),
        ({"family": "ple", "label_experts": 0}, "number of label_experts is 0"),
        ({"family": "din", "activation_widths": (0,)}, r"activation_widths are \[0\]"),
        ({"family": "bst", "transformer_layers": 0}, "transformer_layers = 0 does not read the history"),
        ({"family": "bst", "attention_heads": 3}, "multiple of attention_heads = 3, but is 16"),
        ({"family": "bst", "transformer_output": "last"}, "'last': use all or candidate"),
        ({"family": "hstu", "hstu_layers": 0}, "hstu_layers = 0 does not read the history"),
        ({"family": "hstu", "value_width": 0}, "value_width = 0 has no effect"),
        ({"family": "dhen", "interactions": ("dot", "dot")}, "one or more different interactions"),
        ({"family": "dhen", "interactions": ()}, "not none"),
        ({"family": "dhen", "interactions": ("conv",)}, "choose from dot"),
        ({"family": "dhen", "interactions": ("attention",), "attention_heads": 3}, "attention_heads = 3"),
    ],
)
def test_what_cannot_be_built_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        build_model(model_spec(**options), FEATURES)


def test_an_unknown_option_is_answered_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="'cross_layers'"):
        model_spec(**{"family": "dcnv2", "cross_layer": 2})


def test_options_of_other_families_are_read_at_their_defaults() -> None:
    written = {"family": "dnn", "top_widths": [8], "cross_layers": 3, "interactions": ["dot", "linear"], "towers": None}
    assert model_spec(**written) == model_spec("dnn", top_widths=(8,))


def test_options_of_other_families_are_not_written_down() -> None:
    assert "cross_layers" in model_spec(family="dcnv2").to_dict()
    assert "cross_layers" not in model_spec(family="dlrm").to_dict()


def test_the_example_of_how_to_add_a_model_works(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (PROJECT_ROOT / "examples/plugin/shunter_example/wide.py").read_text()
    module = ModuleType("shunter.models.families.wide")
    exec(text, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert isinstance(MODEL_FAMILIES.entries, dict)
    monkeypatch.setitem(MODEL_FAMILIES.entries, "wide", Entry(target=f"{module.__name__}:WIDE"))
    model = build_model(model_spec(family="wide"), FEATURES)
    assert model(*inputs_of(FEATURES, batch=4)).shape == (4,)
    assert count_model(model_spec(family="wide"), FEATURES).matmul_flops_per_sample > 0
    space = SearchSpace(families=("wide",), options=family_options("wide"))
    assert space.build(space.default())[0].to_dict()["scale"] == 1.0
    with pytest.raises(RequestError, match="scale = 0"):
        build_model(model_spec("wide", scale=0.0), FEATURES)


TASKS = replace(FEATURES, tasks=("click", "conversion", "like"))
DEEP = MODEL_FAMILIES.names_with(has_hidden_layers=True)
TASK_SPECS = {
    **{family: SPECS[family] for family in MODEL_FAMILIES.names},
    "ple levels": SPECS["ple of two levels"],
    **{f"{family} with towers": replace(SPECS[family], task_tower_width=8) for family in DEEP},
    "finalmlp heads": replace(SPECS["finalmlp gated"], task_tower_width=8),
}
every_task_spec = pytest.mark.parametrize("spec", TASK_SPECS.values(), ids=TASK_SPECS.keys())


@every_task_spec
def test_several_tasks_share_a_body_and_each_has_a_head_of_its_own(spec: ModelSpec) -> None:
    model = build_model(spec, TASKS, seed=1).train()
    logits = model.layers(*(part.detach() for part in model.layer_inputs(*inputs_of(TASKS, batch=16))))
    assert logits.shape == (16, 3)
    assert logits.dtype == torch.float32
    parameters = dict(model.layers.named_parameters())
    reached = []
    for task in range(3):
        model.layers.zero_grad()
        logits[:, task].square().sum().backward(retain_graph=True)
        gradients = {name: one.grad for name, one in parameters.items() if one.grad is not None}
        reached.append({name: gradient.clone() for name, gradient in gradients.items() if gradient.any()})
    assert reached[0].keys() | reached[1].keys() | reached[2].keys() == set(parameters)
    shared = set.intersection(*map(set, reached))
    own = {
        name for name in shared if reached[0][name].shape[0] == 3 and not (reached[0][name] * reached[1][name]).any()
    }
    assert shared - own or spec.family == "lr", "nothing is shared"
    assert own or set(reached[0]) != set(reached[1]), "no task has weights of its own"


@every_task_spec
def test_a_model_of_several_tasks_is_counted_and_saved_like_any_other(spec: ModelSpec, tmp_path: Path) -> None:
    inputs = inputs_of(FEATURES, batch=32)
    members = [build_model(one, TASKS, seed=3).eval() for one in (spec, model_spec())]
    ensemble = Ensemble(members, [[2, 1, 0], [2, 3, 1]]).eval()
    save_model(ensemble, tmp_path)
    with torch.no_grad():
        scored = load_model(tmp_path)(*inputs)
        assert torch.equal(scored, ensemble(*inputs))
        torch.testing.assert_close(scored[:, 0], (members[0](*inputs)[:, 0] + members[1](*inputs)[:, 0]) / 2)
        torch.testing.assert_close(scored[:, 2], members[1](*inputs)[:, 2])
    layers = members[0].train().layers
    with FlopCounterMode(display=False) as counter:
        layers(*layer_inputs(spec, TASKS, 32, "cpu")).sum().backward()
    assert count_flops_per_sample(spec, TASKS) == counter.get_total_flops() / 32


@pytest.mark.parametrize("family", MODEL_FAMILIES.names)
def test_a_single_label_is_what_it_was_without_tasks(family: str) -> None:
    spec = SPECS[family]
    single = replace(FEATURES, tasks=("click",))
    assert FEATURES.to_dict() == {name: value for name, value in single.to_dict().items() if name != "tasks"}
    assert "task_tower_width" not in spec.to_dict()
    models = [build_model(spec, features, seed=2).eval() for features in (FEATURES, single)]
    assert list(models[0].state_dict()) == list(models[1].state_dict())
    with torch.no_grad():
        first, second = (model(*inputs_of(FEATURES, batch=8)) for model in models)
    assert torch.equal(first, second)


def test_towers_need_several_tasks_and_a_width() -> None:
    for features, width in ((FEATURES, 8), (TASKS, 0)):
        with pytest.raises(RequestError, match="task_tower_width"):
            build_model(model_spec(task_tower_width=width), features)
    with pytest.raises(RequestError, match="must divide the width of a task's tower"):
        build_model(model_spec(family="finalmlp", fusion_heads=4, task_tower_width=6), TASKS)
