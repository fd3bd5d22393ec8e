"""MLflow loader and scorer of a registered model: an encoder and weights, without code besides this module.

Layout of the model's data folder, `data/recommender` in MLflow's format:

    encoder/    encoder of raw rows to ids and numbers, written by ingestion
    model/      architecture and safetensors weights, written by `shunter.engine.checkpoint.storage` or
    `shunter.engine.ranking.storage`
    signed.json    signature of the home that registered the model, see `shunter.tracking.registry.signing`
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shunter.engine.checkpoint.scoring import memory_for_tables
from shunter.engine.checkpoint.storage import load_model
from shunter.engine.data.batch import Bags, Batch, make_batch
from shunter.engine.metrics import predict
from shunter.engine.ranking.storage import StoredRanker, is_ranker, load_ranker
from shunter.engine.table_files import TABLES_IN_FILES
from shunter.errors import RequestError
from shunter.models.graph.ranker import Ranker
from shunter.tracking.registry.row_scorer import RowScorer
from shunter.tracking.registry.signing import DESCRIPTION, MODEL_COPY, check_model_folder, checked_copy

if TYPE_CHECKING:
    import pandas as pd

    from shunter.ingestion.encoding.encoded import EncodedRows
    from shunter.ingestion.encoding.encoder import Encoder
    from shunter.models.ensemble import Ensemble
    from shunter.models.registry import Model

_given_memory: ContextVar[int | None] = ContextVar("memory of the embedding tables", default=None)


class Scorer(RowScorer):
    """Scorer of raw rows with a click model."""

    kind = "click"

    def __init__(self, encoder: "Encoder", model: "Model | Ensemble") -> None:
        super().__init__(encoder)
        self._model = model

    @property
    def model(self) -> "Model | Ensemble":
        """Model that scores the encoded rows."""
        return self._model

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, one for each score of a row."""
        return self._model.features.tasks or (self._model.features.score_name,)

    def predict(self, model_input: "pd.DataFrame", params: dict[str, Any] | None = None) -> "np.ndarray | pd.DataFrame":
        """Predict the probability of a positive label, or a number; arguments, errors, warnings as `RowScorer.predict`.

        Returns:
            float64 `[rows]`: between 0 and 1, or in the unit of a label that is a number. Several tasks: a frame with
            the index of the rows and a column per task.
        """
        scores = super().predict(model_input, params)
        tasks = self._model.features.tasks
        if not tasks:
            return scores
        import pandas as pd

        return pd.DataFrame(scores, columns=pd.Index(tasks), index=model_input.index)

    def scores_of(self, rows: "EncodedRows") -> np.ndarray:
        """Return the predictions of at most `ROWS_AT_ONCE` encoded rows, float64 `[rows]` or `[rows, tasks]`."""
        return predict(self.logits(rows) + self.encoder.log_odds_shift, self._model.features.number)

    @torch.no_grad()
    def logits(self, rows: "EncodedRows") -> np.ndarray:
        """Return the log odds of encoded rows, float32 `[rows]` or `[rows, tasks]`."""
        return self._model(*self.batch(rows).inputs).float().numpy()

    def batch(self, rows: "EncodedRows") -> Batch:
        """Return encoded rows as the input of the model."""
        return make_batch(
            self._model.features,
            dense=rows.dense if rows.dense.shape[1] else None,
            categorical=rows.categorical if rows.categorical.shape[1] else None,
            bags=[Bags(values=bag.values, lengths=np.diff(bag.offsets), weights=bag.weights) for bag in rows.bags],
        )


class RankingScorer(RowScorer):
    """Scorer of raw rows with a ranking model; scores order the items of one user and are not probabilities.

    `shunter.models.graph.ranker` defines the scores of users and items not seen in training.

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


def _load_pyfunc(data_path: str) -> "Scorer | RankingScorer":
    """Load a model from its data folder; entry point for MLflow."""
    data = Path(data_path)
    whole = data.parents[1]
    if (whole / DESCRIPTION).exists():
        check_model_folder(whole, str(whole))
    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as temporary:
        folder = checked_copy(data, Path(temporary, "recommender"), str(whole))
        given = _given_memory.get()
        return load_scorer(folder / "model", folder / "encoder", given or free_memory_for(folder / "model"))


@contextmanager
def tables_within(memory_bytes: int | None) -> Iterator[None]:
    """Limit the memory in bytes of the embedding tables of models loaded in the block; None for the free memory."""
    before = _given_memory.set(memory_bytes)
    try:
        yield
    finally:
        _given_memory.reset(before)


def free_memory_for(model: Path) -> int | None:
    """Return the memory limit in bytes if the model's embedding tables are too large for the free memory; else None.

    The result is also None for a ranking model.
    """
    return None if is_ranker(model) else memory_for_tables(model)


def load_scorer(model: Path, encoder: Path, memory_bytes: int | None = None) -> "Scorer | RankingScorer":
    """Load the scorer of raw rows from the two folders of a verified model.

    Args:
        model: Folder of the weights.
        encoder: Folder of the encoder.
        memory_bytes: Memory limit of the embedding tables in bytes; the rest of larger tables stays in the file of the
            weights. None for no limit.

    Raises:
        CheckpointError: The weights are missing or damaged.
        DataError: The encoder is missing or damaged.
        RequestError: The memory limit is too small, or the model does not support tables in its file.
        MissingExtensionError: The memory is limited, and no installed extension reads tables from files.
    """
    from shunter.ingestion.encoding.encoder import Encoder
    from shunter.ingestion.encoding.vocabulary import VocabularyIds

    loaded = Encoder.load(encoder)
    if is_ranker(model):
        if memory_bytes is not None:
            raise RequestError("A ranking model is always in memory: leave out --memory.")
        return RankingScorer(loaded, load_ranker(model))
    if memory_bytes is None:
        return Scorer(loaded, load_model(model))
    load_stored_model = TABLES_IN_FILES.load("load_stored_model")
    # For each embedding table, whether its ids are ranks of the values by frequency.
    are_ranks = [isinstance(field.ids, VocabularyIds) for field in loaded.model_order() if field.table is None]
    return Scorer(loaded, load_stored_model(model, memory_bytes, are_ranks))
