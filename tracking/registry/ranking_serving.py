"""A registered graph model: scores pairs of user and item, as they stand in raw rows."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shunter.engine.ranking.storage import StoredRanker
from shunter.models.graph import Ranker

if TYPE_CHECKING:
    import pandas as pd

    from shunter.ingestion.encoding.encoder import EncodedRows, Encoder

ROWS_AT_ONCE = 8_192


class RankingScorer:
    """Scores raw rows, encoded exactly as they were for training.

    Args:
        encoder: Encoder of the data set that the model was trained on.
        stored: Ranker, and which fields it reads.

    Attributes:
        user: Column of the user.
        item: Column of the item.
    """

    def __init__(self, encoder: "Encoder", stored: StoredRanker) -> None:
        single = [field.name for field in stored.features.categorical if not field.multi_valued]
        self._user, self._item = single.index(stored.user), single.index(stored.item)
        self._encoder, self._ranker = encoder, stored.ranker
        self.user, self.item = stored.user, stored.item

    @property
    def encoder(self) -> "Encoder":
        """What it reads."""
        return self._encoder

    @property
    def ranker(self) -> Ranker:
        """What scores, by ids."""
        return self._ranker

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the scores of a row."""
        return ("score",)

    def predict(self, model_input: "pd.DataFrame", params: dict[str, Any] | None = None) -> np.ndarray:
        """Score each row's item for its user; `shunter.models.graph.ranker` says what a user or item never seen gets.

        Args:
            model_input: Raw rows with the columns of the click log.
            params: Parameters of MLflow's protocol; there are none.

        Returns:
            float64 `[rows]`: the higher, the better among items of the same user; no probability.

        Raises:
            DataError: a column is missing.
        """
        parts = [
            self._score(model_input.iloc[start : start + ROWS_AT_ONCE])
            for start in range(0, len(model_input), ROWS_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def ids(self, frame: "pd.DataFrame") -> tuple[np.ndarray, np.ndarray]:
        """Ids of the user and the item of raw rows, int64 `[rows]` each; 0 is what training did not know.

        Raises:
            DataError: a column is missing.
        """
        return self.ids_of(self._encoder.encode(frame))

    def _score(self, frame: "pd.DataFrame") -> np.ndarray:
        return self.scores_of(self._encoder.encode(frame))

    def scores_of(self, rows: "EncodedRows") -> np.ndarray:
        """Scores of at most `ROWS_AT_ONCE` rows that its encoder has encoded, float64 `[rows]`."""
        users, items = map(torch.from_numpy, self.ids_of(rows))
        return self._ranker(users, items).double().numpy()

    def ids_of(self, rows: "EncodedRows") -> tuple[np.ndarray, np.ndarray]:
        """The same of rows that its encoder has encoded."""
        ids = rows.categorical.astype(np.int64)
        return ids[:, self._user], ids[:, self._item]
