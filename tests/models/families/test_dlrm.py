"""The network against the formulas of the paper, over every mix of features."""

from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.dlrm import DlrmLayers
from shunter.models.layers import DotInteraction
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.models.kernels import KERNELS


def features_of(dense: int, single: int, bags: int = 0) -> Features:
    return Features(
        dense=tuple(f"d{i}" for i in range(dense)),
        categorical=(
            *(CategoricalFeature(name=f"c{i}", rows=7) for i in range(single)),
            *(CategoricalFeature(name=f"b{i}", rows=7, multi_valued=True) for i in range(bags)),
        ),
    )


def inputs_of(features: Features, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    lengths = [
        torch.randint(0, 4, (batch,), generator=random) if field.multi_valued else torch.ones(batch, dtype=torch.long)
        for field in features.categorical
    ]
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), torch.cat(lengths).cumsum(0)]).int()
    values = torch.randint(0, 7, (int(offsets[-1]),), generator=random).int()
    return torch.randn(batch, len(features.dense), generator=random), values, offsets


def score_by_hand(model: Model, dense: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    """One sample and one pair at a time, from the weights alone."""
    fields, batch = len(model.features.categorical), len(dense)
    starts = [sum(field.rows for field in model.features.categorical[:t]) for t in range(fields)]
    layers = model.layers
    assert isinstance(layers, DlrmLayers)
    logits = []
    for b in range(batch):
        vectors = []
        for t in range(fields):
            bag = values[offsets[t * batch + b] : offsets[t * batch + b + 1]].long()
            vectors.append(model.embeddings.weight[starts[t] + bag].sum(0))
        beside = torch.cat(vectors)
        if layers.bottom is not None:
            beside = layers.bottom(dense[b])
            vectors = [beside, *vectors]
        products = [vectors[i] @ vectors[j] for j, i in combinations(range(len(vectors)), 2)]
        order = sorted(range(len(products)), key=lambda k: list(combinations(range(len(vectors)), 2))[k][::-1])
        products = [products[k] for k in order]
        logits.append(layers.top(torch.cat([beside, *(product.reshape(1) for product in products)])))
    return torch.cat(logits)


@pytest.mark.parametrize(
    ("dense", "single", "bags"), [(3, 2, 1), (0, 3, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (2, 0, 2)]
)
def test_scores_equal_the_computation_by_hand(dense: int, single: int, bags: int) -> None:
    features = features_of(dense, single, bags)
    model = build_model(model_spec(embedding_dim=8, bottom_widths=(5,), top_widths=(6, 4)), features, seed=1).eval()
    inputs = inputs_of(features, batch=5)
    with torch.no_grad():
        torch.testing.assert_close(model(*inputs), score_by_hand(model, *inputs), atol=1e-5, rtol=1e-5)


def test_a_step_changes_touched_rows_and_gives_every_layer_a_gradient() -> None:
    features = features_of(2, 2)
    model = build_model(model_spec(), features)
    before = model.embeddings.weight.clone()
    dense, values, offsets = inputs_of(features, batch=4)
    model(dense, values, offsets).square().sum().backward()
    touched = {int(v) + 7 * (i // 4) for i, v in enumerate(values)}
    changed = (model.embeddings.weight != before).any(1).nonzero().flatten().tolist()
    assert set(changed) == touched
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.layers.parameters())


def test_dropout_acts_in_training_only() -> None:
    features = features_of(2, 2)
    model = build_model(model_spec(dropout=0.5), features)
    inputs = inputs_of(features, batch=8)
    with torch.no_grad():
        assert not torch.equal(model.train()(*inputs), model(*inputs))
        assert torch.equal(model.eval()(*inputs), model(*inputs))


@pytest.mark.parametrize("kernel", KERNELS)
def test_initial_weights_follow_from_the_seed_alone(kernel: str) -> None:
    features = features_of(2, 2)
    torch.manual_seed(99)
    one = build_model(model_spec(), features, seed=5, kernel=kernel).state_dict()  # type: ignore[arg-type]
    torch.manual_seed(1)
    same = build_model(model_spec(), features, seed=5).state_dict()
    other = build_model(model_spec(), features, seed=6).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in same)
    assert not any(torch.equal(one[name], other[name]) for name in other)


def test_building_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    build_model(model_spec(), features_of(1, 1), seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_width_that_kernels_cannot_take_is_refused() -> None:
    with pytest.raises(RequestError, match="multiple of 4"):
        build_model(model_spec(embedding_dim=6), features_of(1, 1))


def test_a_model_without_categorical_field_is_refused() -> None:
    with pytest.raises(RequestError, match="categorical field"):
        build_model(model_spec(), features_of(3, 0))


def test_widths_of_the_reference_shape() -> None:
    spec = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))
    model = build_model(spec, features_of(13, 26))
    widths = [(m.in_features, m.out_features) for m in model.modules() if isinstance(m, nn.Linear)]
    assert widths == [(13, 512), (512, 256), (256, 64), (64, 16), (367, 512), (512, 256), (256, 1)]


@pytest.mark.parametrize("vectors", [1, 2, 5])
def test_products_have_the_gradient_of_the_formula(vectors: int) -> None:
    products = DotInteraction(vectors)
    given = torch.randn(3, vectors, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given.requires_grad_()
    assert products(given).shape == (3, vectors * (vectors - 1) // 2)
    if vectors > 1:
        assert torch.autograd.gradcheck(products, given)
