"""Keeps the model that answers: finds it by its name, and another one takes over when the name means another."""

import logging
import re
import threading
from dataclasses import replace
from pathlib import Path

from ingestion.rows import read_rows
from serving.metrics import Metrics
from serving.served import ServedModel
from serving.table import Table
from shunter.errors import RequestError, ShunterError
from tracking.registry.best_items import Seen, pairs_of
from tracking.registry.named import NAMED, open_model
from tracking.registry.ranking_serving import RankingScorer
from tracking.registry.versions import CHAMPION, version_by_alias

BLOCK_ROWS = 65_536
_log = logging.getLogger(__name__)


class Keeper:
    """The model of the moment.

    A thread asks the registry which version the alias is on. Another version is loaded beside the one that answers,
    scores a row, and then takes its place; one that cannot is told once and the old one goes on.

    Args:
        named: As `tracking.registry.named.open_model` takes it.
        metrics: Where takeovers are counted.
        items: As `load` takes it.

    Raises:
        ShunterError: There is no such model, or it is not what was signed.
    """

    def __init__(self, named: str, metrics: Metrics, items: Path | None = None) -> None:
        self._named, self._metrics, self._items = named, metrics, items
        self._refused: str | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._take(load(named, items))

    def current(self) -> ServedModel:
        """The model that answers now."""
        return self._current

    def follow(self, seconds: float) -> None:
        """Look every so many seconds for another version, where the model was named by an alias."""
        if seconds and self._alias() is not None:
            self._thread = threading.Thread(target=self._follow, args=(seconds,), name="follow", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def look(self) -> bool:
        """Look once; whether another version has taken over."""
        alias = self._alias()
        if alias is None:
            return False
        title = "?"
        try:
            version = version_by_alias(*alias)
            title = f"{version.name}/{version.version}"
            if title in (self._current.title, self._refused):
                return False
            found = load(title, self._items)
        except Exception as error:
            self._tell(title, error)
            return False
        self._take(found)
        self._refused = None
        self._metrics.takeovers.labels("done").inc()
        _log.warning("%s takes over.", found.title)
        return True

    def _follow(self, seconds: float) -> None:
        while not self._end.wait(seconds):
            self.look()

    def _take(self, model: ServedModel) -> None:
        self._current = model
        self._metrics.model.clear()
        self._metrics.model.labels(model.name, model.version).set(1)

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


def load(named: str, items: Path | None = None) -> ServedModel:
    """Load a model, and let it score a row once, so that the first request is not the slowest.

    Args:
        named: As `tracking.registry.named.open_model` takes it.
        items: Of a model that ranks, a log whose items are ranked for a user, but those that it has beside the user.

    Raises:
        ShunterError: There is no such model, it is not what was signed, or it cannot score.
    """
    with open_model(named) as found:
        scorer = found.scorer()
        registered = re.fullmatch(r"(?P<name>[^/:@]+)/(?P<version>\d+)", found.title)
        if registered is not None and not Path(found.title).exists():
            model = ServedModel(registered["name"], registered["version"], found.title, scorer)
        else:
            model = ServedModel(Path(found.title).resolve().name, FOLDER, found.title, scorer)
        if items is not None:
            model = replace(model, items=_seen_in(model, items))
        (scores,) = model.score([Table(1, {name: [None] for name in model.columns})])
        if isinstance(scores, Exception):
            raise scores
        return model


def _seen_in(model: ServedModel, path: Path) -> Seen:
    if not isinstance(model.scorer, RankingScorer):
        raise RequestError(
            f"--items {path} has no effect on {model.title}, which ranks no items: leave it out, or serve a model that "
            "does, such as one of --model ease."
        )
    encoder = model.scorer.encoder
    blocks = read_rows(path, encoder.columns, encoder.optional_columns, BLOCK_ROWS)
    return Seen.of(pairs_of(model.scorer, block) for block in blocks)
