"""Combinations as a layer: what each computes, and that it lasts through the files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.models.combination import Combination, CombineBy, Combiner
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from tests.models.test_ensemble import FEATURES, INPUTS

LOGITS = torch.tensor([[0.0, 2.0], [-3.0, 1.0], [5.0, 5.0]], dtype=torch.float64)
WEIGHTS = torch.tensor([0.25, 0.75], dtype=torch.float64)
REFERENCES = ((-3.0, 0.0, 1.0, 6.0), (-1.0, 1.5, 3.0, 4.0))


def test_the_mean_of_probabilities() -> None:
    expected = torch.logit(torch.sigmoid(LOGITS) @ WEIGHTS)
    torch.testing.assert_close(Combiner(Combination(by="probabilities"))(LOGITS, WEIGHTS), expected)


def test_a_member_without_weight_adds_nothing_to_the_mean_of_probabilities() -> None:
    weights = torch.tensor([0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(Combiner(Combination(by="probabilities"))(LOGITS, weights), LOGITS[:, 1])


def test_the_mean_of_ranks_is_interpolated_between_quantiles() -> None:
    levels = np.linspace(0, 1, 4)
    ranks = np.stack([np.interp(LOGITS[:, k], REFERENCES[k], levels) for k in range(2)], axis=1)
    share = np.clip(ranks @ WEIGHTS.numpy(), 1e-3, 1 - 1e-3)
    found = Combiner(Combination(by="ranks", references=REFERENCES))(LOGITS, WEIGHTS)
    assert found.numpy() == pytest.approx(np.log(share / (1 - share)))


def test_votes_count_members_above_their_thresholds() -> None:
    found = Combiner(Combination(by="votes", references=((-1.0,), (1.5,))))(LOGITS, WEIGHTS)
    assert torch.sigmoid(found).tolist() == pytest.approx([0.999, 0.001, 0.999])


def test_a_line_and_knots_come_after_the_mean() -> None:
    combination = Combination(slope=2.0, intercept=1.0, knots=((-1.0, -2.0), (3.0, 0.0), (8.0, 1.0)))
    mean = 2 * (LOGITS @ WEIGHTS) + 1
    expected = np.interp(mean.numpy(), [-1, 3, 8], [-2, 0, 1])
    assert Combiner(combination)(LOGITS, WEIGHTS).numpy() == pytest.approx(expected)


@pytest.mark.parametrize("by", ["logits", "probabilities", "ranks", "votes"])
def test_a_saved_combination_scores_bit_by_bit_as_before(by: CombineBy, tmp_path: Path) -> None:
    references = {"ranks": REFERENCES, "votes": ((0.1,), (0.2,))}.get(by, ())
    combination = Combination(
        by=by, slope=1 / 3, intercept=0.1, references=references, knots=((-5.0, -2.0), (5.0, 1 / 3)), label="x"
    )
    models = [build_model(model_spec(top_widths=(8,)), FEATURES, seed=seed).eval() for seed in range(2)]
    ensemble = Ensemble(models, [1, 2], combination=combination).eval()
    save_model(ensemble, tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, Ensemble)
    assert loaded.combiner is not None
    assert loaded.combiner.combination == combination
    with torch.no_grad():
        assert torch.equal(loaded(*INPUTS), ensemble(*INPUTS))
