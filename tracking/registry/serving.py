"""The registered model as MLflow loads it: an encoder and weights, and no code but this module's.

Layout of the model's data folder, `data/recommender` in MLflow's format:

    encoder/    turns a raw row into ids and numbers, written by ingestion
    model/      architecture and safetensors weights, written by `shunter.engine.checkpoint.storage` or
    `shunter.engine.ranking.storage`
    signed.json    signature of the home that registered it, see `shunter.tracking.registry.signing`
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shunter.engine.checkpoint.storage import load_model
from shunter.engine.checkpoint.stored import load_stored_model, memory_for_tables
from shunter.engine.data.batch import Bags, make_batch
from shunter.engine.ranking.storage import is_ranker, load_ranker
from shunter.errors import RequestError
from shunter.tracking.registry.ranking_serving import RankingScorer
from shunter.tracking.registry.row_scorer import RowScorer
from shunter.tracking.registry.signing import MODEL_COPY, checked_copy
from shunter.tracking.registry.trusted import DESCRIPTION, check_model_folder

if TYPE_CHECKING:
    import pandas as pd

    from shunter.ingestion.encoding.encoded import EncodedRows
    from shunter.ingestion.encoding.encoder import Encoder
    from shunter.models.ensemble import Ensemble
    from shunter.models.registry import Model

_given_memory: ContextVar[int | None] = ContextVar("memory of the embedding tables", default=None)


class Scorer(RowScorer):
    """Scores raw rows with a model of clicks.

    Args:
        encoder: Encoder of the data set that the model was trained on.
        model: Model in evaluation mode, on the CPU.
    """

    def __init__(self, encoder: "Encoder", model: "Model | Ensemble") -> None:
        super().__init__(encoder)
        self._model = model

    @property
    def model(self) -> "Model | Ensemble":
        """What scores."""
        return self._model

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the scores of a row."""
        return self._model.features.tasks or ("probability",)

    def predict(self, model_input: "pd.DataFrame", params: dict[str, Any] | None = None) -> "np.ndarray | pd.DataFrame":
        """Predict the probability of a positive label; takes, raises and warns as `RowScorer.predict`.

        Returns:
            float64 `[rows]`, between 0 and 1; of several tasks a frame with the rows' index and a column for each.
        """
        scores = super().predict(model_input, params)
        tasks = self._model.features.tasks
        if not tasks:
            return scores
        import pandas as pd

        return pd.DataFrame(scores, columns=pd.Index(tasks), index=model_input.index)

    def scores_of(self, rows: "EncodedRows") -> np.ndarray:
        """Probabilities of at most `ROWS_AT_ONCE` rows that its encoder has encoded, float64 like `logits`."""
        return torch.sigmoid(torch.from_numpy(self.logits(rows)).double()).numpy()

    @torch.no_grad()
    def logits(self, rows: "EncodedRows") -> np.ndarray:
        """Predict the log odds of rows that its encoder has encoded: `[rows]`, or `[rows, tasks]`."""
        batch = make_batch(
            self._model.features,
            dense=rows.dense if rows.dense.shape[1] else None,
            categorical=rows.categorical if rows.categorical.shape[1] else None,
            bags=[Bags(values=bag.values, lengths=np.diff(bag.offsets), weights=bag.weights) for bag in rows.bags],
        )
        return self._model(*batch.inputs).float().numpy()


def _load_pyfunc(data_path: str) -> "Scorer | RankingScorer":
    """Entry point that MLflow calls with the data folder of the model.

    Raises:
        TrackingError: The model could run code of its own, or is not the one that was signed.
        CheckpointError: Its weights are missing or damaged.
        DataError: Its encoder is.
    """
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
    """Let the embedding tables of what MLflow loads within the block take so much; None is what is free."""
    before = _given_memory.set(memory_bytes)
    try:
        yield
    finally:
        _given_memory.reset(before)


def free_memory_for(model: Path) -> int | None:
    """As `shunter.engine.checkpoint.stored.memory_for_tables`, of any model; one that ranks lies in memory alone."""
    return None if is_ranker(model) else memory_for_tables(model)


def load_scorer(model: Path, encoder: Path, memory_bytes: int | None = None) -> "Scorer | RankingScorer":
    """What scores raw rows, from its two folders, which were looked at before.

    Args:
        model: Folder of the weights.
        encoder: Folder of the encoder.
        memory_bytes: What the embedding tables may take, of larger ones the rest stays in the file of the weights; None
            is what they need.

    Raises:
        CheckpointError: The weights are missing or damaged.
        DataError: The encoder is.
        RequestError: The memory is too little, or the model cannot stay in its file.
    """
    from shunter.ingestion.encoding.encoder import Encoder

    loaded = Encoder.load(encoder)
    if is_ranker(model):
        if memory_bytes is not None:
            raise RequestError("A model that ranks items lies in memory: leave out --memory.")
        return RankingScorer(loaded, load_ranker(model))
    if memory_bytes is None:
        return Scorer(loaded, load_model(model))
    return Scorer(loaded, load_stored_model(model, memory_bytes, _are_ranks(loaded)))


def _are_ranks(encoder: "Encoder") -> list[bool]:
    """Of each table, whether its ids are ranks by frequency."""
    from shunter.ingestion.encoding.vocabulary import VocabularyIds

    return [isinstance(field.ids, VocabularyIds) for field in encoder.model_order() if field.table is None]
