"""What is learned of values: told from chance where they differ, and not where they do not."""

import numpy as np
import pytest

from shunter.extensions.learned_hashing.behaviour import Occurrences, behaviour_of, learn

VALUES, ROWS = 200, 20_000


def seen(deviation: float) -> tuple[Occurrences, np.ndarray]:
    """Rows of one column whose values add to the logit what is drawn with a deviation."""
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.2, ROWS), VALUES).astype(np.int32) - 1
    logits = random.normal(0, deviation, VALUES)[ids] - 1
    labels = (random.random(ROWS) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    rows = Occurrences(ids, np.ones(ROWS, np.float32), np.arange(ROWS + 1), labels)
    return rows, np.bincount(ids, minlength=VALUES)


@pytest.mark.parametrize(("deviation", "low", "high"), [(0.0, 300, np.inf), (1.0, 2, 20), (2.0, 0.5, 6)])
def test_the_doubt_is_that_of_how_much_values_differ(deviation: float, low: float, high: float) -> None:
    """Half is believed of what was seen 1 / (deviation**2 p (1 - p)) times, about 5 / deviation**2."""
    rows, counts = seen(deviation)
    found = behaviour_of(learn(rows, VALUES), rows, 0, counts)
    assert low <= found.doubt <= high
    often = behaviour_of(learn(rows, VALUES), rows, 0, 10 * counts)  # of a log of which one row in ten was learned
    assert often.doubt == pytest.approx(10 * found.doubt)
    assert np.array_equal(often.points, found.points)
