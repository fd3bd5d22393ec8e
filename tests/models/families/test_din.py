"""DIN against equation 3 of its paper, one position at a time."""

import numpy as np
import pytest
import torch

from shunter.models.families.din import DinLayers, DinSpec, InterestPooling
from shunter.models.families.histories import candidates
from shunter.models.registry import build_model, model_spec
from tests.models.families.test_sequence import FEATURES, jagged


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("has_candidate", [False, True])
def test_a_history_is_added_up_with_the_weights_of_each_id(softmax: bool, has_candidate: bool) -> None:
    torch.manual_seed(0)
    spec = DinSpec(embedding_dim=4, activation_widths=(5,), activation_softmax=softmax)
    pooling = InterestPooling(spec, has_candidate=has_candidate)
    lengths, vectors, asked = torch.tensor([0, 1, 3, 5]), torch.randn(4, 5, 4), torch.randn(4, 4)
    if pooling.question is not None:
        asked = pooling.question.detach().expand(4, -1)
    found = pooling(vectors, lengths, asked if has_candidate else None).detach().numpy()
    first, first_bias, last, last_bias = (one.detach().numpy().astype(float) for one in pooling.activation.parameters())
    for ids, length, candidate, pooled in zip(vectors.numpy(), lengths.tolist(), asked.numpy(), found, strict=True):
        seen = [np.concatenate([e, candidate, e - candidate, e * candidate]) for e in ids[:length]]
        weights = np.array([last @ np.maximum(first @ one + first_bias, 0) + last_bias for one in seen]).reshape(length)
        if softmax and length:
            weights = np.exp(weights) / np.exp(weights).sum()
        np.testing.assert_allclose(pooled, weights @ ids[:length], rtol=1e-4, atol=1e-6)


def test_the_candidate_is_the_field_whose_ids_the_history_holds() -> None:
    assert candidates(FEATURES) == (0, None)
    spec = model_spec("din", embedding_dim=4, top_widths=())
    model = build_model(spec, FEATURES, seed=1).eval()
    assert isinstance(model.layers, DinLayers)
    dense = torch.zeros(1, 1)
    asked = []

    def note(_module: torch.nn.Module, given: tuple) -> None:
        asked.append(given[2])

    for encoder in model.layers.encoders:
        encoder.register_forward_pre_hook(note)
    model(dense, *jagged([[[3]], [[2, 5]], [[1]], [[4]]]))
    assert torch.equal(asked[0], model.embeddings.weight[3].unsqueeze(0))
    assert asked[1] is None
