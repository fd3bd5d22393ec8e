"""Scorer of a registered graph model for the pairs of user and item in raw rows."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from shunter.engine.ranking.storage import StoredRanker
from shunter.models.graph.ranker import Ranker
from shunter.tracking.registry.row_scorer import RowScorer

if TYPE_CHECKING:
    import pandas as pd

    from shunter.ingestion.encoding.encoded import EncodedRows
    from shunter.ingestion.encoding.encoder import Encoder


class RankingScorer(RowScorer):
    """Scorer of raw rows with a ranking model; scores order the items of one user and are not probabilities.

    `shunter.models.graph.ranker` defines the scores of users and items not seen in training.

    Args:
        encoder: Encoder of the data set that the model was trained on.
        stored: Ranking model with the names of its user and item fields.

    Attributes:
        user: Column of the user.
        item: Column of the item.
        user_field: Field of the user.
        item_field: Field of the item.
    """

    kind = "ranking"

    def __init__(self, encoder: "Encoder", stored: StoredRanker) -> None:
        single = [field.name for field in stored.features.categorical if not field.multi_valued]
        self._user, self._item = single.index(stored.user), single.index(stored.item)
        super().__init__(encoder)
        self._ranker = stored.ranker
        self.user, self.item = stored.user, stored.item
        by_name = {field.name: field for field in encoder.categorical}
        self.user_field, self.item_field = by_name[stored.user], by_name[stored.item]

    @property
    def ranker(self) -> Ranker:
        """Ranking model, which scores pairs of ids."""
        return self._ranker

    @property
    def outputs(self) -> tuple[str, ...]:
        """Name of the only output, `score`."""
        return ("score",)

    def ids(self, frame: "pd.DataFrame") -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of user and item of raw rows, int64 `[rows]` each; 0 is a value that is unknown in training.

        Raises:
            DataError: A column is missing.
        """
        return self.ids_of(self.encoder.encode(frame))

    def scores_of(self, rows: "EncodedRows") -> np.ndarray:
        """Return the scores of at most `ROWS_AT_ONCE` encoded rows, float64 `[rows]`."""
        users, items = map(torch.from_numpy, self.ids_of(rows))
        return self._ranker(users, items).double().numpy()

    def ids_of(self, rows: "EncodedRows") -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of user and item of encoded rows, int64 `[rows]` each."""
        ids = rows.categorical.astype(np.int64)
        return ids[:, self._user], ids[:, self._item]
