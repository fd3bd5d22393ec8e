"""Sums along edges: DGL and torch agree with a slow sum, forward and backward; samplers draw real neighbours."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import RequestError
from shunter.models.graph.propagation import DglSum, NeighbourSum, TorchSum, has_dgl, neighbour_sum
from shunter.models.graph.sage import DglSampler, NeighbourSampler, TorchSampler

pytest.importorskip("dgl")
CPU = torch.device("cpu")
EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30, unique=True)


@settings(max_examples=15, deadline=None)
@given(edges=EDGES, seed=st.integers(0, 1000))
def test_both_backends_sum_and_differentiate_like_a_loop(edges: list[tuple[int, int]], seed: int) -> None:
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    generator = torch.Generator().manual_seed(seed)
    vectors, upstream = torch.randn(6, 3, generator=generator), torch.randn(4, 3, generator=generator)
    expected, gradient = torch.zeros(4, 3), torch.zeros(6, 3)
    for source, target in edges:
        expected[target] += vectors[source]
        gradient[source] += upstream[target]
    for build in (DglSum, TorchSum):
        total: NeighbourSum = build(pairs[:, 0].copy(), pairs[:, 1].copy(), 6, 4, CPU)
        leaf = vectors.clone().requires_grad_()
        result = total(leaf)
        result.backward(upstream)
        torch.testing.assert_close(result, expected)
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad, gradient)


def test_dgl_is_taken_where_it_is_installed() -> None:
    edge = np.array([0])
    assert has_dgl()
    assert isinstance(neighbour_sum(edge, edge, 1, 1), DglSum)
    assert isinstance(neighbour_sum(edge, edge, 1, 1, backend="torch"), TorchSum)


def test_a_device_that_dgl_was_not_built_for_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("a build of DGL for CUDA may be here")
    edge = np.array([0])
    with pytest.raises(RequestError, match="cuda:0"):
        neighbour_sum(edge, edge, 1, 1, device="cuda:0", backend="dgl")


@pytest.mark.parametrize("build", [DglSampler, TorchSampler])
def test_samplers_draw_each_neighbour_at_most_once_and_all_of_few(build: type[NeighbourSampler]) -> None:
    random = np.random.default_rng(0)
    pairs = np.unique(random.integers(0, 12, (60, 2)), axis=0)
    sampler = build(pairs[:, 0].copy(), pairs[:, 1].copy(), 12)
    targets = torch.tensor([1, 4, 7, 11])
    for seed in range(5):
        sampler.seed(seed)
        sources, owners = sampler.draw(targets, 3)
        drawn = list(zip(sources.tolist(), owners.tolist(), strict=True))
        assert len(drawn) == len(set(drawn))
        assert set(drawn) <= {(int(source), int(target)) for source, target in pairs}
        for target in targets.tolist():
            degree = int((pairs[:, 1] == target).sum())
            assert sum(owner == target for _, owner in drawn) == min(3, degree)


@pytest.mark.parametrize("build", [DglSampler, TorchSampler])
def test_samplers_draw_by_their_seed_and_every_neighbour_in_the_end(build: type[NeighbourSampler]) -> None:
    sampler = build(np.arange(1, 9), np.zeros(8, dtype=np.int64), 9)
    seen: set[int] = set()
    for seed in range(40):
        draws = []
        for _ in range(2):
            sampler.seed(seed)
            draws.append(sampler.draw(torch.tensor([0]), 2)[0].tolist())
        assert draws[0] == draws[1]
        seen.update(draws[0])
    assert seen == set(range(1, 9))
