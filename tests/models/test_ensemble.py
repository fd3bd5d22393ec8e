"""The weighted mean of logits."""

import pytest
import torch

from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

FEATURES = Features(dense=("d",), categorical=(CategoricalFeature(name="c", rows=9),))
INPUTS = (torch.ones(3, 1), torch.tensor([0, 4, 8]).int(), torch.tensor([0, 1, 2, 3]).int())


def test_logits_are_the_weighted_mean_of_the_members() -> None:
    models = [build_model(model_spec(top_widths=(8,)), FEATURES, seed=seed).eval() for seed in range(3)]
    with torch.no_grad():
        members = [model(*INPUTS) for model in models]
        expected = (members[0] + 2 * members[1] + members[2] * 5) / 8
        torch.testing.assert_close(Ensemble(models, [1, 2, 5])(*INPUTS), expected)


def test_a_single_member_scores_as_the_model_itself() -> None:
    model = build_model(model_spec(), FEATURES).eval()
    with torch.no_grad():
        torch.testing.assert_close(Ensemble([model], [0.3])(*INPUTS), model(*INPUTS))


def test_a_scale_multiplies_the_mean_and_lasts_with_the_weights() -> None:
    models = [build_model(model_spec(top_widths=(8,)), FEATURES, seed=seed).eval() for seed in range(2)]
    scaled = Ensemble(models, [1, 3], 0.5)
    with torch.no_grad():
        torch.testing.assert_close(scaled(*INPUTS), 0.5 * Ensemble(models, [1, 3])(*INPUTS))
    again = Ensemble(models, scaled.weights.tolist())
    again.load_state_dict(scaled.state_dict())
    assert again.weights.tolist() == scaled.weights.tolist()


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [0.0, 0.0], [1.0]])
def test_weights_that_are_no_mean_are_a_mistake(weights: list[float]) -> None:
    models = [build_model(model_spec(), FEATURES, seed=seed) for seed in range(2)]
    with pytest.raises(AssertionError):
        Ensemble(models, weights)
