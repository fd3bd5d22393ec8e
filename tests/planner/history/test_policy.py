"""What an observation is worth is what drawing says."""

import numpy as np
import pytest

from shunter.planner.history import Posterior, knowledge_gradient


def test_knowledge_gradient_is_what_an_observation_is_expected_to_save() -> None:
    """By drawing: the truth from the belief, what is observed of one option, and the least mean after it."""
    covariance = np.array([[0.04, 0.03, 0.0], [0.03, 0.09, 0.0], [0.0, 0.0, 0.01]])
    doubtful = Posterior(np.array([0.0, 0.1, 0.05]), covariance, noise=0.1)
    random = np.random.default_rng(0)
    truth = random.multivariate_normal(doubtful.mean, covariance, 100_000)
    for option, gain in enumerate(knowledge_gradient(doubtful)):
        seen = truth[:, option] + 0.1 * random.standard_normal(len(truth))
        slope = covariance[:, option] / (covariance[option, option] + 0.1**2)
        after = doubtful.mean + (seen - doubtful.mean[option])[:, None] * slope
        assert gain == pytest.approx(-after.min(axis=1).mean(), abs=2e-3)


def test_to_observe_what_is_known_teaches_nothing() -> None:
    known = Posterior(np.array([0.0, 0.1]), np.diag([0.0, 0.2**2]), noise=0.1)
    assert knowledge_gradient(known)[0] == 0.0
    assert knowledge_gradient(known)[1] > 0.01
