"""That a probability of being good enough is met as often as it says."""

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from shunter.planner.history.quality import PRIOR_DEVIATION, quality_outlook
from tests.planner.history.test_calibration import run

DRAWS = 400


@pytest.mark.parametrize("runs", [1, 3, 10])
@pytest.mark.parametrize("deviation", [PRIOR_DEVIATION / 2, PRIOR_DEVIATION])
def test_what_is_called_likely_is_met_as_often(runs: int, deviation: float) -> None:
    rng = np.random.default_rng(runs)
    chances, met = [], []
    for _ in range(DRAWS):
        *past, coming = expit(rng.normal(1.0, deviation, runs + 1))
        asked = float(expit(logit(past[0]) + rng.normal(0, deviation)))
        outlook = quality_outlook([_ended(auc) for auc in past], asked)
        assert outlook is not None
        chances.append(outlook.probability)
        met.append(coming >= asked)
    chances, met = np.array(chances), np.array(met)
    assert met.mean() == pytest.approx(chances.mean(), abs=0.05)
    for half in (chances < 0.5, chances >= 0.5):
        # So few runs leave the spread in doubt: a claim may be more timid than need be, and hardly bolder.
        off = (met[half].mean() - chances[half].mean()) * (1 if chances[half].mean() > 0.5 else -1)
        assert -0.06 < off < 0.15


def _ended(auc: float, **changes: Any) -> Any:
    return run(1.0, auc=auc, **changes)
