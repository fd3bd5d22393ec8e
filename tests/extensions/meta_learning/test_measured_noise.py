"""What chance does to a loss, where it was measured, is what the surrogates of past studies expect of it."""

import numpy as np

from shunter.extensions.meta_learning.portfolio import NOISE_BOUNDS, Surrogate, noise_of_scores
from shunter.extensions.meta_learning.transfer import NOISES, hypotheses
from shunter.search.protocol import Outcome


def test_measured_noise_stands_in_for_the_constants() -> None:
    outcomes = [Outcome(state="complete", validation_ne=0.5 + 0.01 * place) for place in range(20)]
    little, much = (noise_of_scores(outcomes, deviation) for deviation in (0.0005, 0.05))

    assert little == NOISE_BOUNDS[0]
    assert little < much <= NOISE_BOUNDS[1]
    assert {one.noise for one in hypotheses(1, (much,))} == {much}
    assert {one.noise for one in hypotheses(0)} == set(NOISES)
    points, values = np.linspace(0, 1, 12)[:, None], np.sin(np.linspace(0, 6, 12))
    rough = np.abs(Surrogate(points, values, 1.0).predict(points) - values).max()
    assert np.abs(Surrogate(points, values, 0.05).predict(points) - values).max() < rough
