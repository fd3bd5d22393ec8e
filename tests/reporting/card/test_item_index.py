"""What a training says of an index of its items, beside a search among all of them."""

import numpy as np
import pytest
import torch

from shunter.engine.ranking.interactions import Interactions
from shunter.models.graph.ranker import VectorRanker
from shunter.reporting.card import ranking as card
from shunter.reporting.card.ranking import FEWEST_ITEMS, try_index

USERS, ITEMS, WIDTH = 200, FEWEST_ITEMS + 905, 8


def around_centres(items: int = ITEMS) -> VectorRanker:
    random = torch.Generator().manual_seed(1)
    centres = torch.randn(60, WIDTH, generator=random)
    users, vectors = (
        centres[torch.randint(60, (count,), generator=random)] + 0.2 * torch.randn(count, WIDTH, generator=random)
        for count in (USERS, items)
    )
    return VectorRanker(users, vectors, torch.ones(USERS), torch.ones(items))


def first_of_all() -> Interactions:
    """Each user has the three best items."""
    of = around_centres()
    scores = of.user_vectors[1:] @ of.item_vectors.T
    scores[:, 0] = -torch.inf
    items = scores.topk(3).indices.numpy()
    return Interactions.of(np.repeat(np.arange(1, USERS), 3), items.ravel())


def test_the_recall_is_measured_without_what_users_chose_and_told_with_what_a_server_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = try_index(around_centres(), first_of_all())
    metrics = found.metrics()
    assert 0.95 < metrics["index.recall20"] <= 1
    assert metrics["index.items"] == ITEMS - 1
    assert f"{metrics['index.recall100']:.3f} at 100" in found.sentence
    assert found.sentence.endswith("with --index approximate, by itself only from 50,000 items on.")
    monkeypatch.setattr(card, "pays", lambda items, users: True)
    assert try_index(around_centres(), first_of_all()).sentence.endswith("and a server takes it by itself.")


def test_one_that_finds_too_few_is_told_with_its_recall() -> None:
    random = torch.Generator().manual_seed(2)
    users, items = (torch.randn(count, 32, generator=random) for count in (USERS, ITEMS))
    found = try_index(VectorRanker(users, items, torch.ones(USERS), torch.ones(ITEMS)), first_of_all())
    assert 0 < found.metrics()["index.recall20"] < 0.95
    assert found.sentence.endswith("less than 0.95: it is refused, and all scores are compared (exact).")


def test_few_items_have_none_and_no_figures() -> None:
    few = try_index(around_centres(50), Interactions.of(np.array([1]), np.array([2])))
    assert few.metrics() == {}
    assert few.sentence.startswith("The best of 49 items are found by all scores (exact): an index has no lists of 100")
