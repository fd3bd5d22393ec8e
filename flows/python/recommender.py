"""Python object of a registered or exported model: scores, rankings, similar items, quality and explanations."""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shunter.errors import RequestError, UnsupportedError, UnusableValuesWarning
from shunter.flows.python import frames
from shunter.model_families import AUTO
from shunter.registry import Entry, Registry
from shunter.tracking.registry.row_scorer import ROWS_AT_ONCE, RowScorer

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl

    from shunter.requests import TrainRequest

BLOCK_ROWS = 4 * ROWS_AT_ONCE  # the same as for files, so that scores are equal
KINDS = Registry(
    "recommender",
    {
        "click": Entry(target="shunter.flows.python.click_recommender:ClickRecommender"),
        "ranking": Entry(target="shunter.flows.python.ranking_recommender:RankingRecommender"),
    },
    group="shunter.recommenders",
)
# Functions that continue the training of a model; arguments: model name, rows, schema file and options.
UPDATES = Registry("update", {"night": Entry(target="shunter.retraining.new_rows:update")}, group="shunter.updates")
AnyScorer = TypeVar("AnyScorer", bound=RowScorer)


class Recommender(ABC, Generic[AnyScorer]):
    """Trained model that scores raw rows; `load` returns one.

    A frame is a DataFrame of pandas or polars, an Arrow table or a NumPy structured array, with the columns of the log.
    Results are pandas data frames. Methods that a kind of model does not support raise `UnsupportedError`.

    Args:
        title: Name of the model, such as `shop/3`.
        scorer: Scorer of raw rows.
        increments: Increments that were applied to the model.

    Attributes:
        title: Name of the model.
        max_unknown: Largest share of a column's values, 0 to 1, that may be unknown or unreadable; None for any.

    Examples:
        >>> model = shunter.Recommender.load("shop@champion")
        >>> model.predict(log.head(3)).shape
        (3,)
        >>> model.explain(log.head(1)).columns.tolist()
        ['price', 'user', 'item']
    """

    def __init__(self, title: str, scorer: AnyScorer, increments: Sequence[Path] = ()) -> None:
        self.title, self.max_unknown = title, None
        self._scorer, self._increments = scorer, tuple(increments)

    @staticmethod
    def load(
        model: str | os.PathLike[str] | None = None,
        *,
        memory: str | None = None,
        max_unknown: float | None = None,
        increments: Sequence[str | os.PathLike[str]] = (),
    ) -> "Recommender[Any]":
        """Load a verified model from the registry or from the folder of an exported model.

        Args:
            model: `shop` or `shop@champion` for the champion, `shop@ALIAS`, `shop/VERSION`, or a folder; the only
                registered model if omitted.
            memory: Memory limit of the embedding tables, such as `256MiB`; the rest stays in the file of the weights,
                with equal scores. If omitted, the free memory is the limit.
            max_unknown: Largest share of a column's values, 0 to 1, that may be unknown or unreadable.
            increments: Folders of `shunter export --since` that are applied first, in order.

        Raises:
            RequestError: The model does not exist, several models exist and none is named, or the memory is too small.
            TrackingError: The model could run foreign code or does not match its signature, or the store fails.
        """
        from shunter.tracking.registry.named import open_model
        from shunter.tracking.registry.versions import only_model
        from shunter.validation import parse_bytes

        try:
            memory_bytes = None if memory is None else parse_bytes(memory)
        except ValueError as error:
            raise RequestError(f"The memory {error}.") from None
        folders = [Path(folder) for folder in increments]
        with open_model(only_model() if model is None else os.fspath(model), folders) as found:
            scorer = found.fitting_scorer() if memory_bytes is None else found.scorer(memory_bytes)
        loaded: Recommender[Any] = KINDS.load(scorer.kind)(found.title, scorer, folders)
        loaded.max_unknown = max_unknown
        return loaded

    def __repr__(self) -> str:
        """Return the name of the model and the columns that it reads."""
        return f"<{type(self).__name__} {self.title}: {', '.join(self.columns)}>"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a frame must have to be scored."""
        return self._scorer.encoder.columns

    def predict(self, frame: Any) -> "np.ndarray | pd.DataFrame":
        """Score rows; warn with `UnusableValuesWarning` about unknown and unreadable values.

        Args:
            frame: Rows with the `columns` of the model; other columns are ignored.

        Returns:
            Probability of a positive label, float64 `[rows]`; for several labels a frame with a column for each. A
            ranking model gives scores, which order the items of one user.

        Raises:
            DataError: A column is missing, or has values that cannot be read.
            UnusableValuesError: More of a column's values than `max_unknown` are unknown or unreadable.
        """
        import numpy as np

        rows = frames.polars_of(frame)
        encoder, outputs = self._scorer.encoder, self._scorer.outputs
        encoder.check_columns(rows.columns)
        counts, scores = encoder.count(), [np.empty((0, len(outputs)) if len(outputs) > 1 else 0)]
        for block in rows.iter_slices(BLOCK_ROWS):
            found, of_block = self._scorer.score_block(block)
            counts += of_block
            scores.append(found)
        counts.check(self.max_unknown)
        if notice := counts.notice():
            warnings.warn(UnusableValuesWarning(notice, counts.by_kind()), stacklevel=2)
        values = np.concatenate(scores)
        if len(outputs) == 1:
            return values
        import pandas as pd

        return pd.DataFrame(values, columns=pd.Index(outputs), index=frames.index_of(frame))

    @abstractmethod
    def rank(self, users: Any = None, k: int = 10, *, items: Any = None, seen: Any = None) -> "pd.DataFrame":
        """Return the best items for each user, with columns for user, `rank` from 1, item and `score`.

        Args:
            users: For a ranking model, values of the user column; all users of `seen` if omitted. For a click model, a
                frame with a row for each user, with all columns that belong to the user.
            k: Number of items for each user.
            items: For a ranking model, values of the item column; all items of `seen` if omitted. For a click model, a
                frame with a row for each item, with the remaining columns of the model.
            seen: For a ranking model, a log of users and items, as frame or file. Its items are not recommended to the
                same users again. If omitted, the log that the model was trained on.

        Raises:
            UnsupportedError: The model needs items or a log, and none is given.
            RequestError: `k` is not positive, or a column is in both frames.
            DataError: A column is missing.
        """

    @abstractmethod
    def embed(self, items: Any, column: str | None = None) -> "np.ndarray":
        """Return the learned vector of each value, float32 `[values, width]`; the vector of id 0 for unknown values.

        Args:
            items: Values of a column.
            column: Column of the values; for a ranking model the item if omitted. A click model needs it. The vectors
                of an ensemble are those of its members, one after the other.

        Raises:
            UnsupportedError: The model has no vectors of this column.
        """

    def similar(self, items: Any, k: int = 10, *, among: Any = None, column: str | None = None) -> "pd.DataFrame":
        """Return the most similar values of a column, by the cosine of their vectors (`embed`).

        Args:
            items: Values to compare with.
            k: Number of similar values for each of `items`.
            among: Values to choose from; for a ranking model the items of the log that it was trained on if omitted.
            column: Column of the values, see `embed`.

        Returns:
            Columns `item`, `rank` from 1, `similar` and `score`; a value is not similar to itself.

        Raises:
            UnsupportedError: The model has no vectors, or needs `among`.
            RequestError: `k` is not positive.
        """
        import numpy as np
        import pandas as pd

        positive(k)
        wanted = pd.Series(frames.series_of("item", items).to_list()).drop_duplicates()
        candidates = self._items_of_log("similar") if among is None else among
        known = pd.Series(frames.series_of("item", candidates).to_list()).drop_duplicates()
        vectors = [self.embed(values, column) for values in (wanted, known)]
        lengths = [np.linalg.norm(some, axis=1, keepdims=True) for some in vectors]
        one, other = (some / np.where(length > 0, length, 1) for some, length in zip(vectors, lengths, strict=True))
        rows = []
        texts = known.astype(str).to_numpy()
        for value, scores in zip(wanted, one @ other.T, strict=True):
            order = [place for place in np.argsort(-scores, kind="stable") if texts[place] != str(value)][:k]
            rows += [(value, rank, known.iloc[place], scores[place]) for rank, place in enumerate(order, 1)]
        return pd.DataFrame(rows, columns=pd.Index(["item", "rank", "similar", "score"]))

    @abstractmethod
    def evaluate(self, frame: Any, *, schema: Any = None, seen: Any = None) -> "pd.DataFrame":
        """Return the quality on labelled rows, one row of metrics for each label.

        Args:
            frame: Rows with the columns of the model and the labels. Rows whose label cannot be read are left out.
            schema: Schema that names the labels, as `shunter.train` takes it; that of the training if omitted.
            seen: For a ranking model, a log whose (user, item) pairs are not ranked; the training log if omitted.

        Raises:
            UnsupportedError: The training's schema or log is unknown or no longer exists.
            DataError: A column is missing, or no row has a label.
        """

    @abstractmethod
    def explain(self, frame: Any) -> "pd.DataFrame":
        """Return what each value contributes to the score of its row, in log odds.

        A contribution is the difference of the row's log odds with and without the value of the column. The model is
        not additive, so the contributions of a row do not sum to its log odds. With several labels, the first is
        explained.

        Args:
            frame: Rows to explain.

        Returns:
            One row for each row of `frame`, with the columns of the model.

        Raises:
            UnsupportedError: The model is a ranking model.
            DataError: A column is missing.
        """

    def update(self, rows: Any, *, schema: Any = None, **options: Any) -> Any:
        """Continue the training on new rows by a nightly run, as `shunter nightly` does; return its outcome.

        The rows are stored by day. A challenger starts from the champion's weights and is trained on the days that the
        champion was not trained on, except the newest day. The challenger replaces the champion if it is better on the
        newest day. The first call therefore needs rows of at least two days, and later calls of one day. `load` the
        model again to use the new champion.

        Args:
            rows: Rows with the columns of the log, the label and the time.
            schema: Schema that names the time, as `shunter.train` takes it; that of the training if omitted.
            options: Fields of `NightlyRequest`, such as `nightly_epochs=2` or `promote="always"`.

        Returns:
            Result of the retraining: its `outcome`, its `reason`, the comparison of both models (`judgement`), and the
            version that is `champion` now.

        Raises:
            UnsupportedError: The model is not registered, or its schema names no time or no longer exists.
            DataError: There is no earlier day to train on, or a column is missing.
            RequestError: An option is invalid.
        """
        if self._run_id is None:
            raise UnsupportedError("update", self.title, "a registered model")
        asked = self._request
        if schema is None and (asked is None or asked.source.schema_file is None):
            raise UnsupportedError("update", self.title, "a schema that names the time: give it as `schema`")
        file = asked.source.schema_file if schema is None and asked else frames.schema_path(schema)
        family = {} if asked is None or asked.model == AUTO else {"model": asked.model}
        name = self.title.rpartition("/")[0]
        return UPDATES.load("night")(name, frames.polars_of(rows), file, {**family, **options})

    def save(self, folder: str | os.PathLike[str]) -> str | Path:
        """Copy the model to a new folder, which `load`, `shunter serve` and MLflow read; return the path of the folder.

        An address of an object store gets the folder when it is complete, and is returned unchanged.

        Raises:
            RequestError: The folder exists, or cannot be written.
            TrackingError: The store fails.
        """
        from shunter.ingestion.sources.addresses import output_path, parse_address
        from shunter.tracking.registry.named import export_model

        with output_path(target := os.fspath(folder), "folder") as made:
            export_model(self.title, made, self._increments)
        return made if parse_address(target) is None else target

    def _items_of_log(self, method: str) -> "pd.Series":
        raise UnsupportedError(method, self.title, "the values to choose from: give them as `among`")

    def _training_source(self, method: str, instead: str) -> Any:
        """Return the source of the training log; without it, raise UnsupportedError with the advice `instead`."""
        from shunter.errors import DataError
        from shunter.ingestion.sources.open import open_source, with_loss
        from shunter.settings import Settings

        asked = None if self._request is None else self._request.source
        if asked is not None:
            downloads = Settings().downloads_directory
            try:
                source = open_source(
                    asked.data, asked.format, asked.schema_file, downloads, asked.held_out, where=asked.where
                )
                return with_loss(source, self._request.architecture.loss if self._request else None)
            except (DataError, RequestError):
                pass
        raise UnsupportedError(method, self.title, f"data that is no longer there: {instead}")

    def _training_files(self, method: str, instead: str) -> list[str]:
        return [str(path) for path in self._training_source(method, instead).paths]

    @cached_property
    def _run_id(self) -> str | None:
        """Run of the registered version; None for an exported model."""
        from shunter.tracking.listing import list_versions

        return next((one["run_id"] for one in list_versions() if f"{one['name']}/{one['version']}" == self.title), None)

    @cached_property
    def _request(self) -> "TrainRequest | None":
        """Request of the training; None for an exported model, and for a model that a nightly run trained."""
        from pydantic import ValidationError

        from shunter.requests import TrainRequest
        from shunter.tracking.tree import read_artifact

        if self._run_id is None:
            return None
        try:
            return TrainRequest.model_validate_json(read_artifact(self._run_id, "config/request.json") or "")
        except ValidationError:
            return None


def positive(k: int) -> None:
    """Raise `RequestError` unless a number of items is positive."""
    if k < 1:
        raise RequestError(f"The number of items, k, is {k}: use at least 1.")


def blocks_of(data: Any, columns: Sequence[str], encoding: str) -> "Iterator[pl.DataFrame]":
    """Yield raw columns of a log from a frame or files; for errors see `shunter.ingestion.rows.read_rows`."""
    from shunter.ingestion.encoding.columns import check_columns
    from shunter.ingestion.rows import read_rows

    if not frames.is_frame(data):
        files = os.fspath(data) if frames.is_path(data) else [os.fspath(file) for file in data]
        yield from read_rows(files, columns, (), BLOCK_ROWS, encoding=encoding)
        return
    rows = frames.polars_of(data)
    check_columns("The frame", rows.columns, columns, "that the model reads")
    yield from rows.select(columns).iter_slices(BLOCK_ROWS)
