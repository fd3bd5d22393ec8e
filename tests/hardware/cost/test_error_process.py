"""The process over errors, against scikit-learn's regressor with the same kernel."""

from typing import Any

import numpy as np
import pytest

from shunter.hardware.cost.error_process import ErrorProcess
from shunter.hardware.cost.residual import LARGEST_SCALES, LEAST_SCALES, PRIOR_SCALES


@pytest.mark.filterwarnings("ignore:The optimal value found")
@pytest.mark.parametrize("learned", [False, True])
def test_it_answers_as_scikit_learn(learned: bool) -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    random = np.random.default_rng(3)
    inputs, queries = random.normal(size=(40, 5)), random.normal(size=(7, 5))
    deviations = random.uniform(0, 0.2, 40)
    values = 0.2 + 0.3 * np.sin(inputs[:, 0]) + 0.1 * random.normal(size=40)
    bounds = (LEAST_SCALES, LARGEST_SCALES) if learned else None
    found = ErrorProcess.fit(inputs, values, deviations, PRIOR_SCALES, bounds)
    common = ConstantKernel(PRIOR_SCALES.common, (LEAST_SCALES.common, LARGEST_SCALES.common))
    own = ConstantKernel(PRIOR_SCALES.own, (LEAST_SCALES.own, LARGEST_SCALES.own))
    matern = Matern(PRIOR_SCALES.length, (LEAST_SCALES.length, LARGEST_SCALES.length), nu=2.5)
    noise = WhiteKernel(PRIOR_SCALES.noise, (LEAST_SCALES.noise, LARGEST_SCALES.noise))
    optimizer: Any = "fmin_l_bfgs_b" if learned else None
    alpha: Any = 1e-10 + deviations**2
    other: Any = GaussianProcessRegressor(common + own * matern + noise, alpha=alpha, optimizer=optimizer)
    means, stds = other.fit(inputs, values).predict(queries, return_std=True)
    scales = found.scales
    expected = np.exp(other.kernel_.theta)
    assert [scales.common, scales.own, scales.length, scales.noise] == pytest.approx(expected, rel=1e-3)
    mean, deviation = found.predict(queries)
    assert mean == pytest.approx(means, abs=1e-4)
    assert deviation == pytest.approx(stds, abs=1e-4)


def test_what_was_seen_without_noise_is_known() -> None:
    inputs = np.array([[0.0], [3.0]])
    sure = PRIOR_SCALES.__class__(common=0.1, own=0.5, length=1.0, noise=1e-12)
    found = ErrorProcess.fit(inputs, np.array([1.0, -1.0]), np.zeros(2), sure)
    mean, deviation = found.predict(inputs)
    assert mean == pytest.approx([1.0, -1.0], abs=1e-6)
    assert deviation == pytest.approx([0.0, 0.0], abs=1e-4)
