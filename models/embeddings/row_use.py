"""How often a row is asked for, in levels: what a cache of rows in training goes by when it has to choose.

The rows that are asked for most stay, as ingestion has counted them (frequency-pinned rows: MTrainS, arXiv 2305.01515).
An epoch asks for them in a random order, so that neither when a row was last used nor what was counted on the way says
more; and nothing has to be learned anew after a resumption.
"""

import numpy as np

LEVELS = 256  # in one byte
LEVELS_AN_OCTAVE = 4


def use_levels(uses: np.ndarray) -> np.ndarray:
    """Levels of rows, a quarter of an octave each, so that rows of all tables compare.

    Args:
        uses: How often a sample asks for each row, on average.

    Returns:
        uint8: the highest from once a sample on, 0 for a row that is never asked for.
    """
    octaves = np.log2(np.where(uses > 0, uses, 1.0))
    return np.where(uses > 0, np.clip(np.floor(LEVELS_AN_OCTAVE * octaves) + LEVELS - 1, 1, LEVELS - 1), 0).astype(
        np.uint8
    )
