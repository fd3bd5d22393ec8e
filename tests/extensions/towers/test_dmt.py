"""The towers of DMT against their formulas, and every partition that cannot be."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import RequestError
from shunter.extensions.towers.dmt import DcnTower, DlrmTower, DmtLayers, DmtSpec, split_evenly, towers_of
from shunter.models.layers import CrossNetwork
from shunter.models.registry import build_model, model_spec
from tests.models.families.test_dlrm import features_of, inputs_of

FEATURES = features_of(2, 4, 1)  # fields c0 c1 c2 c3 b0
NAMES = ("c0", "c1", "c2", "c3", "b0")


def dmt(**options: object) -> DmtSpec:
    return DmtSpec(**{"embedding_dim": 8, "tower_kind": "dlrm", **options})  # type: ignore[arg-type]


def test_a_dlrm_tower_mixes_all_fields_and_maps_each() -> None:
    spec = dmt(tower_vectors=3, tower_field_vectors=2, tower_dim=5)
    tower = spec.build_tower(fields=4)
    assert isinstance(tower, DlrmTower)
    assert tower.together is not None
    assert tower.each is not None
    pooled = torch.randn(6, 4, 8)
    vectors = tower(pooled)
    assert vectors.shape == (6, 3 + 2 * 4, 5)
    for sample, given_vectors in zip(pooled, vectors, strict=True):
        together = tower.together.weight @ sample.flatten() + tower.together.bias
        each = [tower.each.weight @ field + tower.each.bias for field in sample]
        torch.testing.assert_close(given_vectors.flatten(), torch.cat([together, *each]))


def test_a_dcn_tower_crosses_its_fields_and_projects() -> None:
    spec = dmt(tower_kind="dcn", tower_vectors=2, tower_cross_layers=2)
    tower = spec.build_tower(fields=3)
    assert isinstance(tower, DcnTower)
    pooled = torch.randn(6, 3, 8)
    cross = CrossNetwork(24, 2)
    cross.load_state_dict(tower.cross.state_dict())
    expected = tower.project(cross(pooled.flatten(1))).view(6, 2, 8)
    torch.testing.assert_close(tower(pooled), expected)


@pytest.mark.parametrize("dense", [2, 0])
def test_the_towers_meet_as_in_a_dlrm(dense: int) -> None:
    features = features_of(dense, 4, 1)
    towers = (("c3", "c0"), ("b0",), ("c1", "c2"))
    layers = build_model(dmt(tower_fields=towers), features, seed=2).layers.eval()
    assert isinstance(layers, DmtLayers)
    values, pooled = torch.randn(3, dense), torch.randn(3, 5, 8)
    for b, logit in enumerate(layers(values, pooled)):
        fields = {name: pooled[b : b + 1, place : place + 1] for place, name in enumerate(NAMES)}
        vectors = [
            vector
            for tower, names in zip(layers.towers, towers, strict=True)
            for vector in tower(torch.cat([fields[name] for name in names], dim=1))[0]
        ]
        if layers.above.bottom is not None:
            vectors = [layers.above.bottom(values[b]), *vectors]
        products = [vectors[i] @ vectors[j] for i in range(len(vectors)) for j in range(i)]
        expected = layers.above.top(torch.cat([*vectors, torch.stack(products)]))
        torch.testing.assert_close(logit, expected[0], rtol=1e-4, atol=1e-5)


def test_a_tower_sees_no_field_of_another() -> None:
    layers = build_model(dmt(tower_fields=(("c0", "b0"), ("c1", "c2", "c3"))), FEATURES).layers
    assert isinstance(layers, DmtLayers)
    pooled = torch.randn(2, 5, 8, requires_grad=True)
    grouped = pooled.index_select(1, layers.order).split([2, 3], dim=1)
    layers.towers[0](grouped[0]).sum().backward()
    assert pooled.grad is not None
    assert pooled.grad.any(2).tolist() == [[True, False, False, False, True]] * 2


def test_without_names_the_fields_are_divided_in_their_order() -> None:
    assert towers_of(dmt(towers=2), FEATURES) == ((0, 1, 2), (3, 4))
    assert towers_of(dmt(), FEATURES) == ((0, 1), (2,), (3,), (4,))
    assert towers_of(dmt(), features_of(0, 2)) == ((0,), (1,))
    names = tuple(tuple(NAMES[place] for place in tower) for tower in towers_of(dmt(towers=2), FEATURES))
    ordered, named = (build_model(spec, FEATURES, seed=1) for spec in (dmt(towers=2), dmt(tower_fields=names)))
    inputs = inputs_of(FEATURES, batch=4)
    assert torch.equal(ordered(*inputs), named(*inputs))


@given(count=st.integers(1, 40), parts=st.integers(1, 40))
def test_parts_are_even_and_hold_everything_once(count: int, parts: int) -> None:
    towers = split_evenly(range(count), parts)
    assert [place for tower in towers for place in tower] == list(range(count))
    assert len(towers) == parts
    assert all(abs(len(one) - len(other)) <= 1 for one, other in combinations(towers, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"towers": 6}, "5 categorical fields cannot be divided into 6 towers: use 1 to 5"),
        ({"towers": 0}, "into 0 towers"),
        ({"towers": -1}, "into -1 towers"),
        ({"towers": 3, "tower_fields": (("c0", "c1"), ("c2", "c3", "b0"))}, "towers = 3 contradicts tower_fields.* 2"),
        ({"tower_fields": (("c0", "c9"), ("c2", "c3", "b0"))}, "unknown field 'c9': use one of b0, c0"),
        ({"tower_fields": (("c0", "c1"), ("c2", "c3"))}, "'b0' is in no tower"),
        ({"tower_fields": (("c0", "c1", "b0"), ("c2", "c3", "b0"))}, "'b0' is in 2 towers"),
        ({"tower_fields": (("c0", "c1", "b0", "c2", "c3"), ())}, "has no field"),
        ({"tower_kind": "mlp"}, "kind of tower 'mlp': use 'dlrm' or 'dcn'"),
        ({"tower_vectors": 0}, "have no output"),
        ({"tower_vectors": 0, "tower_kind": "dcn"}, "cannot output 0 vectors"),
        ({"tower_field_vectors": 1, "tower_kind": "dcn"}, "has no effect on towers of kind 'dcn'"),
        ({"tower_dim": 0}, "tower_dim, is 0"),
    ],
)
def test_what_is_no_partition_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        build_model(dmt(**options), FEATURES)


def test_the_partition_is_kept_with_the_architecture() -> None:
    spec = dmt(tower_fields=(("c0", "b0"), ("c1", "c2", "c3")))
    values = spec.to_dict()
    values["tower_fields"] = [list(tower) for tower in values["tower_fields"]]  # as JSON gives it back
    assert model_spec(**values) == spec
