"""How often the bounds of a promised quality hold, in simulated logs whose true quality is known.

A promise is bounded by rows, by users or by days. In each of the three worlds the scores know a part of what makes the
labels; the rest is drawn for each row, for each user, or for each day, so that rows of one user or one day agree more
than chance. The true AUC and NE are those of a sample so large that its error does not count.
"""

from dataclasses import dataclass

import numpy as np

from shunter.engine.ensemble.guarantee import bounds
from shunter.engine.metrics import compute_metrics

CONFIDENCE = 0.95
DRAWS, QUICK_DRAWS = 1_000, 100
TRUE_ROWS = 2_000_000


@dataclass(frozen=True)
class World:
    """What is drawn.

    Attributes:
        unit: What is independent of each other.
        rows: Rows of a draw.
        units: Users or days of a draw; None for rows.
        spread: Standard deviation of what the rows of a unit share, in log odds.
    """

    unit: str
    rows: int
    units: int | None
    spread: float

    def draw(
        self, rows: int, units: int | None, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Labels, log odds as a model would predict them, and the unit of each row; None where each is its own."""
        known = 1.5 * random.normal(size=rows) - 1
        groups = None if units is None else random.integers(0, units, rows)
        shared = random.normal(size=rows if units is None else units)
        hidden = self.spread * (shared if groups is None else shared[groups])
        return (random.random(rows) < 1 / (1 + np.exp(-known - hidden))).astype(np.float32), known, groups


WORLDS = (
    World("row", rows=1_000, units=None, spread=1.0),
    World("user", rows=1_000, units=200, spread=1.0),
    World("day", rows=3_000, units=30, spread=0.3),
)


def coverage(world: World, draws: int, *, true_rows: int = TRUE_ROWS) -> dict[str, float]:
    """Share of the draws whose bound holds: of the AUC, of the NE, and of the AUC by DeLong's variance alone.

    Args:
        world: What is drawn.
        draws: How often.
        true_rows: Rows of the sample that the truth is read from.
    """
    # Each row a unit of its own: what the units share does not change the distribution of a row.
    labels, logits, _ = world.draw(true_rows, None, np.random.default_rng(1))
    truth = compute_metrics(labels, logits)
    held = {"auc": 0, "ne": 0, "delong": 0}
    for seed in range(draws):
        labels, logits, groups = world.draw(world.rows, world.units, np.random.default_rng([2, seed]))
        found = bounds(labels, logits, confidence=CONFIDENCE, groups=groups, seed=seed)
        held["auc"] += found.auc_low <= truth.auc
        held["ne"] += found.ne_high >= truth.ne
        held["delong"] += found.delong_low <= truth.auc
    return {name: count / draws for name, count in held.items()}
