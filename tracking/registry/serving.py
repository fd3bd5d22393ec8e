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
from shunter.engine.ranking.storage import is_ranker, load_ranker
from shunter.engine.table_files import TABLES_IN_FILES
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
    """Scorer of raw rows with a click model.

    Args:
        encoder: Encoder of the data set that the model was trained on.
        model: Model in evaluation mode, on the CPU.
    """

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


def _load_pyfunc(data_path: str) -> "Scorer | RankingScorer":
    """Load a model from its data folder; entry point for MLflow.

    Raises:
        TrackingError: The model could run foreign code, or does not match its signature.
        CheckpointError: The weights are missing or damaged.
        DataError: The encoder is missing or damaged.
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

    loaded = Encoder.load(encoder)
    if is_ranker(model):
        if memory_bytes is not None:
            raise RequestError("A ranking model is always in memory: leave out --memory.")
        return RankingScorer(loaded, load_ranker(model))
    if memory_bytes is None:
        return Scorer(loaded, load_model(model))
    load_stored_model = TABLES_IN_FILES.load("load_stored_model")
    return Scorer(loaded, load_stored_model(model, memory_bytes, _are_ranks(loaded)))


def _are_ranks(encoder: "Encoder") -> list[bool]:
    """Return, for each embedding table, whether its ids are ranks of the values by frequency."""
    from shunter.ingestion.encoding.vocabulary import VocabularyIds

    return [isinstance(field.ids, VocabularyIds) for field in encoder.model_order() if field.table is None]
