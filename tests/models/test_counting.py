"""Counts against formulas worked out by hand."""

import json
from dataclasses import replace

import pytest
import torch

import shunter.models.counting
from shunter.model_families import MODEL_FAMILIES
from shunter.models.counting import BATCHES, count_layers, count_model
from shunter.models.families.dlrm import DlrmLayers, DlrmSpec
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.models.families.test_families import FEATURES as OF_FAMILIES
from tests.models.families.test_families import SPECS

FEATURES = Features(
    dense=("d0", "d1", "d2"),
    categorical=(
        CategoricalFeature(name="a", rows=100),
        CategoricalFeature(name="b", rows=50),
        CategoricalFeature(name="tags", rows=30, multi_valued=True, length=4),
    ),
)
SPEC = DlrmSpec(embedding_dim=8, bottom_widths=(10,), top_widths=(12,))


def test_a_shape_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = DlrmSpec(embedding_dim=8, bottom_widths=(11,), top_widths=(13,))
    counts, layers = count_model(spec, FEATURES), count_layers(spec, FEATURES)
    monkeypatch.setattr(shunter.models.counting, "trace_step", lambda *_, **__: pytest.fail("it was traced again"))
    assert count_model(model_spec(**spec.to_dict()), Features.from_dict(FEATURES.to_dict())) == counts
    assert count_layers(spec, FEATURES) == layers
    assert count_model(spec, FEATURES, ids_per_sample={"tags": 2.5}) != counts


@pytest.mark.parametrize("family", MODEL_FAMILIES.names)
def test_every_family_can_be_kept_by_its_shape(family: str) -> None:
    spec = model_spec(family)
    assert hash(model_spec(**json.loads(json.dumps(spec.to_dict())))) == hash(spec)


def test_flops_are_those_of_the_matrix_products() -> None:
    # Each product costs 2 m n k forward and twice that backward; the dense input itself needs no gradient, and the
    # interaction's two gradients are one, since it is symmetric.
    bottom = 2 * (3 * 10) * 2 + 2 * (10 * 8) * 3
    interaction = 2 * (4 * 8 * 4) * 2
    top = 2 * ((8 + 6) * 12 + 12 * 1) * 3
    assert count_model(SPEC, FEATURES).matmul_flops_per_sample == bottom + interaction + top


def test_parameters_and_optimizer_state_are_those_of_the_built_model() -> None:
    model = build_model(SPEC, FEATURES)
    dense = sum(parameter.numel() for parameter in model.parameters())
    counts = {name: count_model(SPEC, FEATURES, dense_optimizer=name) for name in ("adam", "adagrad", "sgd")}
    assert counts["adam"].parameter_bytes == 4 * (model.embeddings.weight.numel() + dense)
    assert [counts[name].optimizer_bytes for name in counts] == [4 * (180 + n * dense) for n in (2, 1, 0)]


def test_lookups_follow_the_mean_bag_length() -> None:
    counts = count_model(SPEC, FEATURES, ids_per_sample={"tags": 2.5})
    assert counts.lookups_per_sample == 4.5
    assert counts.lookup_bytes_per_sample == 4.5 * 8 * 4
    assert counts.input_bytes_per_sample == 4 * 4 + (4.5 + 3) * 4


def test_activations_are_what_a_real_step_keeps() -> None:
    model = build_model(SPEC, FEATURES, kernel="torch")
    batch, kept = 64, {}
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    dense, pooled = torch.randn(batch, 3), torch.randn(batch, 3, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model.layers(dense, pooled)
        torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.zeros(batch)).backward()
    real = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert count_model(SPEC, FEATURES).activation_bytes_per_sample == pytest.approx(real / batch, rel=0.05)


def test_deeper_networks_dispatch_more_operators() -> None:
    deeper = model_spec(embedding_dim=8, bottom_widths=(10, 10), top_widths=(12, 12))
    assert count_model(deeper, FEATURES).operators_per_step > count_model(SPEC, FEATURES).operators_per_step > 50


def test_a_huge_table_is_counted_without_its_memory() -> None:
    features = Features(dense=(), categorical=(CategoricalFeature(name="id", rows=10**10),))
    counts = count_model(model_spec(embedding_dim=128), features)
    assert counts.parameter_bytes > 5 * 10**12


def test_products_grow_with_the_batch_along_one_axis() -> None:
    first = count_model(SPEC, FEATURES).matmuls[0]  # the bottom's first layer, forward
    assert (first.count, first.m, first.n, first.k, first.batch_axis, first.half) == (1, 1, 10, 3, "m", True)
    interactions = [one for one in count_model(SPEC, FEATURES).matmuls if one.batch_axis == "count"]
    assert [(one.m, one.n, one.k, one.half) for one in interactions] == [(4, 4, 8, False), (4, 8, 4, False)]
    weights = [one for one in count_model(SPEC, FEATURES).matmuls if one.batch_axis == "k"]
    assert {(one.m, one.n) for one in weights} == {(10, 3), (8, 10), (12, 14), (1, 12)}


def test_half_precision_adds_casts_and_keeps_less() -> None:
    counts = count_model(SPEC, FEATURES)
    assert counts.bf16.operators_per_step > counts.fp32.operators_per_step
    assert counts.bf16.activation_bytes_per_sample < counts.fp32.activation_bytes_per_sample


@pytest.mark.parametrize("batch_size", [BATCHES[0], 64, 4096])
def test_layers_add_up_to_the_model(batch_size: int) -> None:
    layers, counts = count_layers(SPEC, FEATURES, batch_size=batch_size), count_model(SPEC, FEATURES)
    assert sum(layer.flops for layer in layers) == batch_size * counts.matmul_flops_per_sample
    moved = sum(
        layer.bytes_read + layer.bytes_written for layer in layers if layer.kind in ("elementwise", "optimizer")
    )
    traffic = counts.fp32
    assert moved == pytest.approx(traffic.traffic_bytes_per_step + batch_size * traffic.traffic_bytes_per_sample)


def test_layers_bear_the_names_of_the_model() -> None:
    layers = count_layers(SPEC, FEATURES, half=True)
    names = [name for name, module in DlrmLayers(SPEC, FEATURES).named_modules() if isinstance(module, torch.nn.Linear)]
    assert {layer.name for layer in layers if layer.kind == "matmul"} == {*names, "interaction"}
    types = {name: {layer.dtype for layer in layers if (layer.kind, layer.name) == ("matmul", name)} for name in names}
    assert types == {name: {"float32" if name == names[-1] else "bfloat16"} for name in names}
    assert (layers[0].name, layers[-1].name) == ("embeddings", "update")
    assert all(layer.intensity > 0 for layer in layers if layer.flops)


def test_the_peak_of_a_real_step_is_what_was_traced() -> None:
    spec = DlrmSpec(embedding_dim=16, bottom_widths=(64,), top_widths=(256, 128))
    counts, batch = count_model(spec, FEATURES).fp32, 4096
    layers = DlrmLayers(spec, FEATURES)
    dense, pooled = torch.randn(batch, 3), torch.randn(batch, 3, 16, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(layers(dense, pooled), torch.zeros(batch))
        loss.backward()
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    alive = peak = 0
    for event in sorted((one for one in events if one.name() == "[memory]"), key=lambda one: one.start_ns()):
        alive += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue]
        peak = max(peak, alive)
    assert counts.peak_bytes_per_step + batch * counts.peak_bytes_per_sample == pytest.approx(peak, rel=0.05)


# A step that another test of the families has counted is not traced again.
@pytest.mark.parametrize(
    ("family", "features"),
    [
        *((family, OF_FAMILIES) for family in sorted(MODEL_FAMILIES.names)),
        *((one, replace(FEATURES, dense=())) for one in ("lr", "fm", "dlrm")),
    ],
)
def test_every_family_is_counted_layer_by_layer(family: str, features: Features) -> None:
    spec = SPECS[family]
    counts = count_model(spec, features)
    layers = count_layers(spec, features, batch_size=256)
    assert sum(layer.flops for layer in layers) == 256 * counts.matmul_flops_per_sample
    has_products = bool(features.dense) or MODEL_FAMILIES.capability(
        family, "has_hidden_layers"
    )  # without either, all is sums
    assert bool(counts.matmul_flops_per_sample) == has_products
    assert counts.fp32.peak_bytes_per_sample >= counts.fp32.activation_bytes_per_sample > 0
    assert counts.bf16.operators_per_step >= counts.fp32.operators_per_step
    assert (
        not MODEL_FAMILIES.capability(family, "has_hidden_layers")
        or counts.bf16.operators_per_step > counts.fp32.operators_per_step
    )
    assert all(one.m * one.n * one.k * one.count > 0 for one in counts.matmuls)
