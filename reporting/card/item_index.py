"""Search for the best items of a graph model: by an index of their vectors with its recall, or by all scores."""

import numpy as np
from pydantic import Field

from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.interactions import UNKNOWN, Interactions, read_before_test
from shunter.engine.ranking.item_index import (
    FEWEST_ITEMS,
    LARGE_CATALOGUE,
    LEAST_RECALL,
    MEASURED_AT,
    TRIED_USERS,
    MeasuredIndex,
    build_index,
    pays,
    why_exact,
)
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import load_ranker
from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.models.graph.ranker import Ranker


class IndexFigures(Frozen):
    """Search method of `shunter serve --items` and `shunter predict --top` for a ranker, measured after its training.

    Attributes:
        sentence: Summary in one sentence.
        items: Number of items that the ranker ranks.
        recall: By the length of the list, the share of the exact best items that the index finds; empty without an
            index.
        build_seconds: Time to build the index; None without an index.
    """

    sentence: str
    items: int
    recall: dict[int, float] = Field(default_factory=dict)
    build_seconds: float | None = None

    def metrics(self) -> dict[str, float]:
        """Return the MLflow metrics `index.*`; empty without an index."""
        if self.build_seconds is None:
            return {}
        recalls = {f"index.recall{length}": recall for length, recall in self.recall.items()}
        return {**recalls, "index.items": float(self.items), "index.build_seconds": self.build_seconds}


def index_of(dataset: Dataset, trained: TrainedRanker) -> IndexFigures:
    """Build an index as a server does, and measure its recall for users and their interactions before the test part.

    Args:
        dataset: Data set.
        trained: Trained ranker.

    Raises:
        CheckpointError: A file of the model is damaged.
    """
    return try_index(load_ranker(trained.directory).ranker, read_before_test(dataset))


def try_index(ranker: Ranker, seen: Interactions) -> IndexFigures:
    """Build an index of a ranker in memory, and measure its recall; see `index_of`.

    Args:
        ranker: Ranker whose items are indexed.
        seen: Interactions of each user, whose items are excluded.
    """
    items = np.arange(UNKNOWN + 1, len(ranker.item_degrees))
    exact = f"The best of {len(items):,} items are found by all scores (exact)"
    if (reason := why_exact(ranker)) is not None:
        return IndexFigures(sentence=f"{exact}: {reason}.", items=len(items))
    if len(items) < FEWEST_ITEMS:
        why = f"an index has no lists of {max(MEASURED_AT)} to offer below {FEWEST_ITEMS:,}"
        return IndexFigures(sentence=f"{exact}: {why}.", items=len(items))
    try:
        measured = build_index(ranker, items, _tried(ranker, seen), least_recall=0.0).measured
    except RequestError as error:
        return IndexFigures(sentence=f"{exact}: {error}", items=len(items))
    assert measured is not None
    return IndexFigures(
        sentence=_as_text(measured), items=len(items), recall=measured.recall, build_seconds=measured.build_seconds
    )


def _tried(ranker: Ranker, seen: Interactions) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return random users with interactions, and the positions of the items of each user."""
    known = np.flatnonzero(ranker.user_degrees.numpy() > 0)
    users = np.random.default_rng(0).permutation(known)[:TRIED_USERS]
    first, last = (np.searchsorted(seen.users, users, side=side) for side in ("left", "right"))
    return users, [seen.items[begin:end] - UNKNOWN - 1 for begin, end in zip(first, last, strict=True)]


def _as_text(measured: MeasuredIndex) -> str:
    if min(measured.recall.values()) < LEAST_RECALL:
        use = f"less than {LEAST_RECALL:g}: it is refused, and all scores are compared (exact)"
    elif pays(measured.items, None):
        use = "and a server takes it by itself"
    else:
        use = f"and is taken with --index approximate, by itself only from {LARGE_CATALOGUE:,} items on"
    return (
        f"An index of the vectors of {measured.items:,} items (FAISS), built in {measured.build_seconds:.1f} s, finds "
        f"a share of the exact best of {measured.recall_as_text()} (measured on {measured.users} users), {use}."
    )
