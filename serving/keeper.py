"""Keeps the model that answers: finds it by its name, and another one takes over when the name means another."""

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shunter.errors import RequestError, ShunterError
from shunter.ingestion.rows import read_rows
from shunter.requests.items import IndexChoice
from shunter.serving.metrics import Metrics
from shunter.serving.served import ServedModel
from shunter.serving.table import Table
from shunter.tracking.registry.best_items import BestItems, Seen
from shunter.tracking.registry.increments import chain_upon
from shunter.tracking.registry.named import NAMED, digest_of_model, open_model
from shunter.tracking.registry.ranking_serving import RankingScorer
from shunter.tracking.registry.versions import CHAMPION, version_by_alias

BLOCK_ROWS = 65_536
_log = logging.getLogger(__name__)


class Keeper:
    """The model of the moment.

    A thread asks the registry which version the alias is on, or looks which increments have come. Another model is
    loaded beside the one that answers, scores a row, and then takes its place; one that cannot is told once and the old
    one goes on.

    Args:
        named: As `shunter.tracking.registry.named.open_model` takes it.
        metrics: Where takeovers are counted.
        items: As `load` takes it.
        increments: Folder that increments of the model come into, each in a folder of its own; None where none do.
        memory_bytes: As `load` takes it.
        index: As `load` takes it.

    Raises:
        ShunterError: There is no such model, it is not what was signed, or increments are for one that changes by
            itself.
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
        """The model that answers now."""
        return self._current

    def follow(self, seconds: float) -> None:
        """Look every so many seconds for another model, where the name or the folder of increments may lead to one."""
        if seconds and (self._increments is not None or self._alias() is not None):
            self._thread = threading.Thread(target=self._follow, args=(seconds,), name="follow", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def look(self) -> bool:
        """Look once; whether another model has taken over."""
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
            self._tell(title, error)
            return False
        self._take_over(found)
        return True

    def _look_for_increments(self, folder: Path) -> bool:
        """Lay the increments that have come upon the model; of those that cannot all be laid, as many as can.

        One that cannot may still be on its way: it is tried again with each look, and told once.
        """
        chain: tuple[Path, ...] = ()
        try:
            chain = tuple(chain_upon(self._digest, folder))
        except (ShunterError, OSError) as error:
            self._tell_once(str(folder), error)
        for length in range(len(chain), len(self._laid), -1):
            try:
                found = self._next(self._named, chain[:length])
            except Exception as error:
                self._tell_once(str(chain[length - 1]), error)
                continue
            self._laid = chain[:length]
            self._take_over(found)
            return True
        return False

    def _check_increments(self, folder: Path) -> None:
        if self._alias() is not None:
            raise RequestError(
                f"--increments {folder} has no effect on {self._named}, which follows the registry by itself: name a "
                "version, or the folder of an exported model."
            )
        if not folder.is_dir():
            raise RequestError(f"--increments {folder} is no folder: name the one that increments are put into.")

    def _load(self, named: str, increments: Sequence[Path] = ()) -> ServedModel:
        return load(named, self._items, increments, self._memory_bytes, index=self._index)

    def _next(self, named: str, increments: Sequence[Path] = ()) -> ServedModel:
        """One that may take over, with the rows in its caches that were asked for most."""
        found = self._load(named, increments)
        found.warm_from(self._current)
        return found

    def _take_over(self, model: ServedModel) -> None:
        self._take(model)
        self._refused = None
        self._metrics.takeovers.labels("done").inc()
        _log.warning("%s takes over.", model.title)

    def _tell_once(self, title: str, error: Exception) -> None:
        if self._refused != (told := f"{title}: {error}"):
            self._tell(title, error)
            self._refused = told

    def _follow(self, seconds: float) -> None:
        while not self._end.wait(seconds):
            self.look()

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

    def _tell(self, title: str, error: Exception) -> None:
        """Say why the old one goes on; a version that cannot be loaded is not tried again, a store that fails is."""
        self._metrics.takeovers.labels("failed").inc()
        if isinstance(error, ShunterError) and title != "?":
            self._refused = title
        _log.warning("%s goes on: %s", self._current.title, error)

    def _alias(self) -> tuple[str, str] | None:
        """Name and alias; None where the name says a version or a folder."""
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
    """Load a model, and let it score a row once, so that the first request is not the slowest.

    Args:
        named: As `shunter.tracking.registry.named.open_model` takes it.
        items: Of a model that ranks, a log whose items are ranked for a user, but those that it has beside the user.
        increments: As `open_model` takes them. Clients go on calling what comes of them by the name of the model that
            they are laid upon.
        memory_bytes: What the embedding tables may take; of larger ones the rest is read from a file. None is what
            they need, where that much is free.
        index: Whether the scores of all these items are compared, or those that an index of their vectors finds.

    Raises:
        ShunterError: There is no such model, it is not what was signed, or it cannot score.
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
            raise RequestError("--index approximate has no effect without --items, whose items it holds: add that.")
        (scores,) = model.score([Table(1, {name: [None] for name in model.columns})])
        if isinstance(scores, Exception):
            raise scores
        return model


def _best_of(model: ServedModel, path: Path, index: IndexChoice) -> BestItems:
    if not isinstance(model.scorer, RankingScorer):
        raise RequestError(
            f"--items {path} has no effect on {model.title}, which ranks no items: leave it out, or serve a model that "
            "does, such as one of --model ease."
        )
    scorer = model.scorer
    encoding = scorer.encoder.text_form.encoding
    seen = Seen.of(scorer, read_rows(path, (scorer.user, scorer.item), (), BLOCK_ROWS, encoding=encoding))
    return BestItems(scorer, model.title, seen, choice=index)
