"""Dot products of pairs by the compiled kernel: those of torch, and the same bits with any number of threads."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func  # pyright: ignore[reportPrivateImportUsage]
from torch.utils.flop_counter import FlopCounterMode

from shunter.models.layers import DotInteraction
from shunter.models.native import pairs
from shunter.models.native.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="the kernels were not compiled here")


def by_torch(vectors: Tensor, interaction: DotInteraction) -> Tensor:
    return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, interaction.pairs)


@settings(max_examples=30, deadline=None)
@given(
    batch=st.integers(0, 9),
    count=st.integers(2, 40),
    dim=st.sampled_from([1, 3, 4, 8, 12, 16, 48]),
    seed=st.integers(0),
)
def test_products_and_gradients_are_those_of_torch(batch: int, count: int, dim: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed % 2**32)
    vectors = torch.randn(batch, count, dim, generator=random, requires_grad=True)
    interaction = DotInteraction(count)
    products = interaction(vectors)
    exact = vectors.detach().double().requires_grad_()
    expected = by_torch(exact, interaction)
    # A slice of something wider, as the gradient of a concatenation is.
    gradient = torch.randn(batch, interaction.count + 3, generator=random)[:, 2 : 2 + interaction.count]
    products.backward(gradient)
    expected.backward(gradient.double())
    assert vectors.grad is not None
    torch.testing.assert_close(products.double(), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(vectors.grad.double(), exact.grad, atol=1e-4, rtol=1e-4)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    vectors = torch.randn(700, 27, 16, generator=torch.Generator().manual_seed(0))
    gradient = torch.randn(700, 351, generator=torch.Generator().manual_seed(1))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append((pairs.pairwise_products(vectors), pairs.pairwise_gradient(vectors, gradient)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for later in found[1:] for one, other in zip(found[0], later, strict=True))


def test_a_compiled_step_calls_the_same_kernel() -> None:
    vectors = torch.randn(70, 5, 8, requires_grad=True)
    gradient = torch.randn(70, 10)
    operators = torch.ops.shunter.pairwise_products.default, torch.ops.shunter.pairwise_gradient.default
    for operator, arguments in zip(operators, [(vectors.detach(),), (vectors.detach(), gradient)], strict=True):
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))
    called: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        called.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph)

    products = torch.compile(DotInteraction(5), backend=aot_autograd(fw_compiler=backend), fullgraph=True)(vectors)
    products.backward(gradient)
    assert {"shunter.pairwise_products.default", "shunter.pairwise_gradient.default"} <= {*called}
    torch.testing.assert_close(products, by_torch(vectors, DotInteraction(5)))


def test_an_exported_program_holds_only_operators_of_torch() -> None:
    program = torch.export.export(DotInteraction(5), (torch.randn(3, 5, 8),))
    assert all("shunter" not in str(node.target) for node in program.graph.nodes)


def test_vectors_that_are_no_numbers_in_memory_are_left_to_torch() -> None:
    assert pairs.suits(torch.zeros(1, 2, 4))
    assert not pairs.suits(torch.zeros(1, 2, 4, device="meta"))
    assert not pairs.suits(torch.zeros(1, 2, 4, dtype=torch.bfloat16))
    with FlopCounterMode(display=False):
        assert not pairs.suits(torch.zeros(1, 2, 4))


@pytest.mark.parametrize("wrong", [torch.zeros(3, 9), torch.zeros(2, 10), torch.zeros(3, 10, dtype=torch.float64)])
def test_a_gradient_that_does_not_fit_is_refused(wrong: Tensor) -> None:
    with pytest.raises(ValueError, match="gradient"):
        pairs.pairwise_gradient(torch.zeros(3, 5, 8), wrong)


@pytest.mark.parametrize(
    "wrong", [torch.zeros(3, 5, 8, dtype=torch.bfloat16), torch.zeros(5, 8), torch.zeros(1, 3, 5, 8)]
)
def test_vectors_that_the_kernel_cannot_read_are_refused(wrong: Tensor) -> None:
    with pytest.raises(ValueError, match="float32"):
        torch.ops.shunter.pairwise_products(wrong)
    with pytest.raises(ValueError, match="float32"):
        torch.ops.shunter.pairwise_gradient(wrong, torch.zeros(3, 10))


def test_torch_does_the_same_where_nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.randn(4, 5, 8)
    native = DotInteraction(5)(vectors)
    monkeypatch.setattr(pairs, "library", lambda: None)
    torch.testing.assert_close(DotInteraction(5)(vectors), native)
