"""AutoInt against equations 5 to 9 of its paper, one field, head and number at a time."""

import numpy as np
import torch

from shunter.models.families.autoint import AutointLayers, InteractingLayer
from shunter.models.registry import build_model, model_spec
from tests.models.families.test_dlrm import features_of


def attended(vectors: np.ndarray, layer: InteractingLayer) -> np.ndarray:
    """An interacting layer over the vectors of one sample, `[vectors, inputs]` to `[vectors, outputs]`."""
    query, key, value = np.split(layer.project.weight.detach().numpy().astype(float), 3)
    outputs = []
    for vector in vectors:
        seen = []
        for head in np.split(np.arange(len(query)), layer.heads):
            scores = np.array([(query[head] @ vector) @ (key[head] @ other) for other in vectors])
            weights = np.exp(scores) / np.exp(scores).sum()
            seen.append(sum(weight * (value[head] @ other) for weight, other in zip(weights, vectors, strict=True)))
        outputs.append(np.maximum(np.concatenate(seen) + layer.residual.weight.detach().numpy() @ vector, 0))
    return np.array(outputs)


def test_fields_attend_to_each_other_head_by_head() -> None:
    torch.manual_seed(0)
    layer, vectors = InteractingLayer(4, 6, heads=3), torch.randn(2, 5, 4)
    for sample, found in zip(vectors.numpy(), layer(vectors).detach().numpy(), strict=True):
        np.testing.assert_allclose(found, attended(sample, layer), rtol=1e-4, atol=1e-6)


def test_attention_and_deep_network_are_added_by_the_last_layer() -> None:
    spec = model_spec("autoint", embedding_dim=4, attention_layers=2, attention_width=6, top_widths=(5,))
    layers = build_model(spec, features_of(0, 3), seed=2).layers.eval()
    assert isinstance(layers, AutointLayers)
    assert layers.deep is not None
    pooled = torch.randn(4, 3, 4)
    weight, bias = (part.detach().numpy() for part in layers.output.parameters())
    for sample, logit in zip(pooled, layers(torch.zeros(4, 0), pooled).tolist(), strict=True):
        vectors = sample.numpy()
        for layer in layers.attention:
            assert isinstance(layer, InteractingLayer)
            vectors = attended(vectors, layer)
        deep = layers.deep(sample.reshape(1, -1)).detach().numpy()[0]
        attention = weight[0, : vectors.size] @ vectors.ravel()
        np.testing.assert_allclose(logit, attention + weight[0, vectors.size :] @ deep + bias[0], rtol=1e-4)
