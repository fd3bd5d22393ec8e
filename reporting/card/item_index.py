"""How the best items of a graph model will be found: by an index of their vectors and its recall, or by all scores."""

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
    """What `shunter serve --items` and `shunter predict --top` will do with a ranker, measured after its training.

    Attributes:
        sentence: All of it, in words.
        items: Items that it ranks.
        recall: By the length of the list, the share of the exact best items that an index finds; empty where there is
            none.
        build_seconds: Time that building it took; None likewise.
    """

    sentence: str
    items: int
    recall: dict[int, float] = Field(default_factory=dict)
    build_seconds: float | None = None

    def metrics(self) -> dict[str, float]:
        """What MLflow shows: `index.*`; empty where there is no index."""
        if self.build_seconds is None:
            return {}
        recalls = {f"index.recall{length}": recall for length, recall in self.recall.items()}
        return {**recalls, "index.items": float(self.items), "index.build_seconds": self.build_seconds}


def index_of(dataset: Dataset, trained: TrainedRanker) -> IndexFigures:
    """Build an index as a server does and measure its recall, for users and what they chose before the test part.

    Args:
        dataset: The data.
        trained: The ranker.

    Raises:
        CheckpointError: A file of the model is damaged.
    """
    return try_index(load_ranker(trained.directory).ranker, read_before_test(dataset))


def try_index(ranker: Ranker, seen: Interactions) -> IndexFigures:
    """The same of a ranker in memory.

    Args:
        ranker: Scores.
        seen: What each user chose, which is left out.
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
        sentence=_in_words(measured), items=len(items), recall=measured.recall, build_seconds=measured.build_seconds
    )


def _tried(ranker: Ranker, seen: Interactions) -> tuple[np.ndarray, list[np.ndarray]]:
    """Some users with an edge in random order, and the places of what each of them chose."""
    known = np.flatnonzero(ranker.user_degrees.numpy() > 0)
    users = np.random.default_rng(0).permutation(known)[:TRIED_USERS]
    first, last = (np.searchsorted(seen.users, users, side=side) for side in ("left", "right"))
    return users, [seen.items[begin:end] - UNKNOWN - 1 for begin, end in zip(first, last, strict=True)]


def _in_words(measured: MeasuredIndex) -> str:
    if min(measured.recall.values()) < LEAST_RECALL:
        use = f"less than {LEAST_RECALL:g}: it is refused, and all scores are compared (exact)"
    elif pays(measured.items, None):
        use = "and a server takes it by itself"
    else:
        use = f"and is taken with --index approximate, by itself only from {LARGE_CATALOGUE:,} items on"
    return (
        f"An index of the vectors of {measured.items:,} items (FAISS), built in {measured.build_seconds:.1f} s, finds "
        f"a share of the exact best of {measured.recall_in_words()} (measured on {measured.users} users), {use}."
    )
