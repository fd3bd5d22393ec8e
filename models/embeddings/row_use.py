"""Access frequency of rows as levels, by which a row cache decides in training which rows to evict.

The most frequent rows stay in the cache, as counted at ingestion (frequency-pinned rows: MTrainS, arXiv 2305.01515). An
epoch accesses rows in random order, so neither the last use of a row nor counts during training would add information.
And nothing has to be counted again after a resumption.
"""

import numpy as np

LEVELS = 256  # fit one byte
LEVELS_AN_OCTAVE = 4


def use_levels(uses: np.ndarray) -> np.ndarray:
    """Return access levels of rows, with four levels per octave, comparable between tables.

    Args:
        uses: Mean number of accesses of each row per sample.

    Returns:
        Levels, uint8: the highest for one or more accesses per sample, 0 for a row that is never accessed.
    """
    octaves = np.log2(np.where(uses > 0, uses, 1.0))
    return np.where(uses > 0, np.clip(np.floor(LEVELS_AN_OCTAVE * octaves) + LEVELS - 1, 1, LEVELS - 1), 0).astype(
        np.uint8
    )
