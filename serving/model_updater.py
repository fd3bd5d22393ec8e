"""Updater of the served model, which replaces the model when its name refers to a new version."""

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shunter.errors import RequestError, ShunterError
from shunter.ingestion.rows import read_rows
from shunter.requests.effort import IndexChoice
from shunter.serving.metrics import Metrics
from shunter.serving.served import ServedModel
from shunter.serving.table import Table
from shunter.tracking.patience import is_passing
from shunter.tracking.registry.best_items import BestItems, Seen
from shunter.tracking.registry.named import INCREMENTS, NAMED, digest_of_model, open_model
from shunter.tracking.registry.serving import RankingScorer
from shunter.tracking.registry.versions import CHAMPION, version_by_alias

BLOCK_ROWS = 65_536
_log = logging.getLogger(__name__)


class ModelUpdater:
    """Updater of the served model: it holds the current model and loads newer versions or increments.

    A thread checks the registry for the version of the alias, or the folder for new increments. A new model is loaded
    while the old one still answers, scores a test row, and then replaces the old model. If that fails, the error is
    logged once and the old model stays.

    Args:
        named: Name of the model, as in `shunter.tracking.registry.named.open_model`.
        metrics: Metrics that count the replacements.
        items: See `load`.
        increments: Folder for increments of the model, each in its own subfolder; None: no increments.
        memory_bytes: See `load`.
        index: See `load`.

    Raises:
        ShunterError: The model does not exist, its signature is wrong, or increments are given for a model that is
            updated from the registry.
    """

    def __init__(
        self,
        named: str,
        metrics: Metrics,
        items: Path | None = None,
        increments: Path | None = None,
        memory_bytes: int | None = None,
        *,
        index: IndexChoice = IndexChoice.AUTO,
    ) -> None:
        self._named, self._metrics, self._items, self._increments = named, metrics, items, increments
        self._memory_bytes, self._index = memory_bytes, index
        self._refused: str | None = None
        self._digest = ""
        self._laid: tuple[Path, ...] = ()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._take(self._load(named))
        if increments is not None:
            self._check_increments(increments)
            self._digest = digest_of_model(named)
            self._look_for_increments(increments)

    def current(self) -> ServedModel:
        """Return the model that is being served."""
        return self._current

    def follow(self, seconds: float) -> None:
        """Start a thread that checks for a new model every `seconds`, if the model has an alias or increments."""
        if seconds and (self._increments is not None or self._alias() is not None):
            self._thread = threading.Thread(target=self._follow, args=(seconds,), name="follow", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop checking for a newer model."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def check_for_update(self) -> bool:
        """Check once for a new model; return True if a new model has replaced the old one."""
        if self._increments is not None:
            return self._look_for_increments(self._increments)
        alias = self._alias()
        if alias is None:
            return False
        title = "?"
        try:
            version = version_by_alias(*alias)
            title = f"{version.name}/{version.version}"
            if title in (self._current.title, self._refused):
                return False
            found = self._next(title)
        except Exception as error:
            self._log_error(title, error)
            return False
        self._take_over(found)
        return True

    def _look_for_increments(self, folder: Path) -> bool:
        """Apply new increments to the model, as many as possible; return True if any was applied.

        An increment that fails may be incomplete: it is tried again at each check, but its error is logged only once.
        """
        chain: tuple[Path, ...] = ()
        try:
            chain = tuple(INCREMENTS.load("chain")(self._digest, folder))
        except (ShunterError, OSError) as error:
            self._log_once(str(folder), error)
        for length in range(len(chain), len(self._laid), -1):
            try:
                found = self._next(self._named, chain[:length])
            except Exception as error:
                self._log_once(str(chain[length - 1]), error)
                continue
            self._laid = chain[:length]
            self._take_over(found)
            return True
        return False

    def _check_increments(self, folder: Path) -> None:
        if self._alias() is not None:
            raise RequestError(
                f"--increments {folder} has no effect on {self._named}, which is updated from the "
                "registry: name a version, or the folder of an exported model."
            )
        if not folder.is_dir():
            raise RequestError(f"--increments {folder} is not a folder: name the folder that receives the increments.")

    def _load(self, named: str, increments: Sequence[Path] = ()) -> ServedModel:
        return load(named, self._items, increments, self._memory_bytes, index=self._index)

    def _next(self, named: str, increments: Sequence[Path] = ()) -> ServedModel:
        """Load a new model, and fill its caches with the rows that the old model uses most."""
        found = self._load(named, increments)
        found.warm_from(self._current)
        return found

    def _take_over(self, model: ServedModel) -> None:
        self._take(model)
        self._refused = None
        self._metrics.takeovers.labels("done").inc()
        _log.warning("%s takes over.", model.title)

    def _log_once(self, title: str, error: Exception) -> None:
        if self._refused != (told := f"{title}: {error}"):
            self._log_error(title, error)
            self._refused = told

    def _follow(self, seconds: float) -> None:
        while not self._end.wait(seconds):
            self.check_for_update()

    def _take(self, model: ServedModel) -> None:
        self._current = model
        self._metrics.tables = model.table_counts
        self._metrics.model.clear()
        self._metrics.model.labels(model.name, model.version).set(1)
        index = None if model.items is None else model.items.measured
        self._metrics.index_recall.clear()
        self._metrics.index_seconds.set(index.build_seconds if index else 0)
        for length, recall in (index.recall if index else {}).items():
            self._metrics.index_recall.labels(str(length)).set(recall)

    def _log_error(self, title: str, error: Exception) -> None:
        """Log why the old model stays in use.

        A found version whose loading raised a `ShunterError` is not tried again, unless the store was away. Other
        errors are retried.
        """
        self._metrics.takeovers.labels("failed").inc()
        cause = error.__cause__
        is_store_away = isinstance(cause, Exception) and is_passing(cause)
        if isinstance(error, ShunterError) and title != "?" and not is_store_away:
            self._refused = title
        _log.warning("%s stays in use: %s", self._current.title, error)

    def _alias(self) -> tuple[str, str] | None:
        """Return name and alias; None if the model is named by version or folder."""
        found = NAMED.fullmatch(self._named)
        if found is None or found["version"] or self._current.version == FOLDER:
            return None
        return found["name"], found["alias"] or CHAMPION


FOLDER = "exported"
REGISTERED = re.compile(r"(?P<name>[^/:@]+)/(?P<version>\d+)")


def load(
    named: str,
    items: Path | None = None,
    increments: Sequence[Path] = (),
    memory_bytes: int | None = None,
    *,
    index: IndexChoice = IndexChoice.AUTO,
) -> ServedModel:
    """Load a model, and score one row, so that the first request is not slow.

    Args:
        named: Name of the model, as in `shunter.tracking.registry.named.open_model`.
        items: For a ranking model: log whose items are ranked for a user, except items with an interaction of this
            user in the log. None ranks only the items of a request.
        increments: As in `open_model`; the served name is still the name of the base model.
        memory_bytes: Memory for the embedding tables; rows beyond it are read from a file. None loads all rows if
            enough memory is free.
        index: Search method of a ranking model: all items are scored, or only the items that a vector index finds.

    Raises:
        ShunterError: The model does not exist, its signature is wrong, or it cannot score.
    """
    with open_model(named, increments) as found:
        scorer = found.fitting_scorer() if memory_bytes is None else found.scorer(memory_bytes)
        registered = REGISTERED.fullmatch(found.title)
        if registered is not None and not Path(found.title).exists():
            base = REGISTERED.fullmatch(named) if increments else registered
            name = base["name"] if base else Path(named).expanduser().resolve().name
            model = ServedModel(name, registered["version"], found.title, scorer)
        else:
            folder = Path(named if increments else found.title).expanduser()
            model = ServedModel(folder.resolve().name, FOLDER, found.title, scorer)
        if items is not None:
            model = replace(model, items=_best_of(model, items, index))
        elif index is IndexChoice.APPROXIMATE:
            raise RequestError(
                "--index approximate has no effect without --items: add --items, the log whose items are indexed."
            )
        (scores,) = model.score([Table(1, {name: [None] for name in model.columns})])
        if isinstance(scores, Exception):
            raise scores
        return model


def _best_of(model: ServedModel, path: Path, index: IndexChoice) -> BestItems:
    if not isinstance(model.scorer, RankingScorer):
        raise RequestError(
            f"--items {path} has no effect on {model.title}, which is no ranking model: leave it out, or "
            "serve a ranking model, such as --model ease."
        )
    scorer = model.scorer
    encoding = scorer.encoder.text_form.encoding
    seen = Seen.of(scorer, read_rows(path, (scorer.user, scorer.item), (), BLOCK_ROWS, encoding=encoding))
    return BestItems(scorer, model.title, seen, choice=index)
