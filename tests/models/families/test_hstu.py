"""HSTU against equations 1 to 3 of its paper in loops over single numbers, in float64."""

from math import exp

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from shunter.models.families.hstu import HstuEncoder, HstuLayer, HstuSpec

Array = NDArray[np.float64]
LENGTHS = torch.tensor([0, 1, 3, 5])


def silu(values: Array) -> Array:
    return np.array([value / (1 + exp(-value)) for value in values.flatten()]).reshape(values.shape)


def normalised(vector: Array, weights: tuple[Array, Array]) -> Array:
    return (vector - vector.mean()) / np.sqrt(vector.var() + 1e-5) * weights[0] + weights[1]


def layer_by_loops(own: HstuLayer, vectors: list[Array], most: int) -> list[Array]:
    """States of the ids, the oldest first, and of the candidate behind them."""
    weights = {name: one.detach().numpy().astype(float) for name, one in own.named_parameters()}
    query_width, value_width = own.widths

    def linear(name: str, vector: Array) -> Array:
        return weights[f"{name}.weight"] @ vector + weights[f"{name}.bias"]

    def norm(number: int, vector: Array) -> Array:
        return normalised(vector, (weights[f"norms.{number}.weight"], weights[f"norms.{number}.bias"]))

    normal = [norm(0, vector) for vector in vectors]
    asked, shown = ([silu(linear(name, one)).reshape(own.heads, -1) for one in normal] for name in ("ask", "show"))
    states = []
    for place, vector in enumerate(vectors):
        sums = np.zeros((own.heads, value_width))
        for head in range(own.heads):
            for other in range(place + 1):
                score = sum(asked[place][head, i] * shown[other][head, i] for i in range(query_width))
                if own.bias is not None:
                    score += weights["bias"][place - other, head]
                sums[head] += silu(np.array([score]))[0] / (most + 1) * shown[other][head, query_width:]
        gate = np.concatenate([one[query_width:] for one in asked[place]])
        states.append(vector + linear("project_out", norm(1, sums.flatten()) * gate))
    return states


@pytest.mark.parametrize("has_candidate", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"hstu_layers": 3, "query_width": 3, "value_width": 5}, {"hstu_layers": 1, "relative_bias": False}]
)
def test_the_candidates_state_is_that_of_the_equations(options: dict, has_candidate: bool) -> None:
    torch.manual_seed(0)
    own = HstuEncoder(HstuSpec(embedding_dim=4, **options), 5, has_candidate=has_candidate).eval()
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter, 0.2, 0.5)
    vectors, asked = torch.randn(4, 5, 4), torch.randn(4, 4)
    if own.question is not None:
        asked = own.question.detach().expand(4, -1)
    found = own.double()(vectors.double(), LENGTHS, asked.double() if has_candidate else None)
    for ids, length, candidate, state in zip(vectors, LENGTHS.tolist(), asked, found, strict=True):
        expected = [one.numpy().astype(float) for one in (*ids[:length], candidate)]
        for layer in own.layers:
            assert isinstance(layer, HstuLayer)
            expected = layer_by_loops(layer, expected, most=5)
        # The scores are rounded to float32, as they are where products are in bfloat16.
        np.testing.assert_allclose(state.detach().numpy(), expected[-1], rtol=1e-4, atol=1e-5)


def test_bias_begins_with_the_nearest() -> None:
    own = HstuLayer(HstuSpec(embedding_dim=4), 4, is_last=True)
    assert own.bias is not None
    assert own.bias[:, 0].tolist() == [2, 2, 1, 0.5, 0.25]
    assert (own.bias[1:].diff(dim=0) < 0).all()
    assert (own.bias[:, 1] >= own.bias[:, 0]).all()
