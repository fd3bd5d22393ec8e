"""How much snapshots differ."""

import numpy as np

from shunter.extensions.fleet.learned.networks import draw_weights
from shunter.extensions.fleet.learned.planner import AGENTS, JOB
from shunter.extensions.fleet.learning.learn import differences
from shunter.extensions.fleet.learning.rollouts import Choice


def test_a_snapshot_does_not_differ_from_itself_and_differences_are_mutual() -> None:
    one, other = draw_weights(AGENTS, 8, 0), draw_weights(AGENTS, 8, 1)
    draw = np.random.default_rng(0)
    choices = [Choice(JOB, draw.normal(size=(4, AGENTS[JOB])).astype(np.float32), 0, 0.0, 0.0) for _ in range(5)]
    found = differences([one, one, other], choices)
    assert found[0, 1] == 0.0
    assert found[0, 2] == found[2, 0] > 0.0
