"""The best items for users, by all scores and by an index, against a slow sort of the scores of all pairs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.ranking import best as best_module
from shunter.engine.ranking import item_index
from shunter.engine.ranking.best import AllScores, Best, highest
from shunter.engine.ranking.item_index import build_index, pays, recall_of
from shunter.errors import RequestError
from shunter.models.graph.fusion import FusedRanker
from shunter.models.graph.ranker import VectorRanker

USERS, ITEMS = 40, 2_500


def ranker(width: int = 6, *, rounded: bool = False) -> VectorRanker:
    """Around a few centres; user 0 is the unknown one, and user 3 chose nothing."""
    random = torch.Generator().manual_seed(1)
    centres = torch.randn(60, width, generator=random)
    drawn = [
        centres[torch.randint(60, (count,), generator=random)] + 0.2 * torch.randn(count, width, generator=random)
        for count in (USERS, ITEMS)
    ]
    users, items = [one.round() if rounded else one for one in drawn]
    degrees = torch.randint(1, 5, (USERS,), generator=random)
    degrees[[0, 3]] = 0
    return VectorRanker(users, items, degrees, torch.randint(0, 4, (ITEMS,), generator=random))


def slowly(of: VectorRanker, user: int, items: np.ndarray, most: int, without: np.ndarray) -> list[int]:
    scores = of.all_scores(torch.tensor([user]))[0, torch.from_numpy(items)].tolist()
    order = sorted((place for place in range(len(items)) if place not in without), key=lambda place: -scores[place])
    return order[:most]


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_all_scores_give_what_a_sort_of_all_pairs_gives_with_ties_too(data: st.DataObject) -> None:
    of = ranker(2, rounded=True)  # whole numbers: most scores are those of other items too
    items = np.array(data.draw(st.lists(st.integers(1, ITEMS - 1), min_size=1, max_size=60, unique=True)))
    users = np.array(data.draw(st.lists(st.integers(0, USERS - 1), min_size=1, max_size=9)))
    places = st.lists(st.integers(0, len(items) - 1), unique=True).map(sorted)
    without = [np.array(data.draw(places), np.int64) for _ in users]
    most = data.draw(st.integers(1, 70))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_module, "MOST_USERS", 4)
        found = AllScores(of, items).best(users, most, without)
    for row, user in enumerate(users.tolist()):
        expected = slowly(of, user, items, most, without[row])
        assert found.places[row, : len(expected)].tolist() == expected
        assert (found.places[row, len(expected) :] == -1).all()
        assert np.isneginf(found.scores[row, len(expected) :]).all()


def test_another_kind_of_ranker_is_asked_for_all_of_its_scores() -> None:
    of = FusedRanker([ranker(), ranker(3)], "z-scores")
    items = np.arange(1, ITEMS)
    found = AllScores(of, items).best(np.array([5]), 4, [np.array([], np.int64)])
    expected = highest(of.all_scores(torch.tensor([5]))[:, 1:], 4)
    assert found.places.tolist() == expected.places.tolist()
    with pytest.raises(RequestError, match="--index"):
        build_index(of, items, (np.array([5, 6]), [items[:0]] * 2))


def test_an_index_finds_most_of_them_without_what_a_user_has_and_says_how_many() -> None:
    of, items = ranker(), np.arange(1, ITEMS)
    users = np.array([user for user in range(USERS) if of.user_degrees[user] > 0])
    exact = AllScores(of, items)
    has = [one[one >= 0] for one in exact.best(users, 3, [items[:0]] * len(users)).places]  # their best of all
    index = build_index(of, items, (users, has), (5, 10))
    measured = index.measured
    assert measured is not None
    assert measured.lists == 200
    assert measured.searched < measured.lists / 4
    everybody = np.arange(USERS)
    own = dict(zip(users.tolist(), has, strict=True))
    without = [own.get(user, items[:0]) for user in everybody.tolist()]
    found, expected = index.best(everybody, 10, without), exact.best(everybody, 10, without)
    assert min(measured.recall.values()) > 0.95
    assert recall_of(found, expected.scores, 10) > 0.95
    for row in range(USERS):
        assert not set(found.places[row]) & set(without[row])
        assert len(set(found.places[row])) == 10
    assert (found.places[[0, 3]] == expected.places[[0, 3]]).all()  # of whom nothing was learned
    products = (of.user_vectors[:, None] * of.item_vectors[found.places + 1]).sum(2).numpy()
    assert found.scores[users] == pytest.approx(products[users], rel=1e-4, abs=1e-5)
    longer = index.best(everybody, 11, without)  # of which no recall is known
    assert (longer.places == exact.best(everybody, 11, without).places).all()
    few = [np.arange(ITEMS - 1 - 3)] * USERS  # only three are left, in whatever list they are
    assert (np.sort(index.best(everybody, 10, few).places[:, :3]) == np.arange(ITEMS - 4, ITEMS - 1)).all()


def test_an_index_that_finds_too_few_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    of = VectorRanker(torch.randn(60, 32), torch.randn(ITEMS, 32), torch.ones(60), torch.ones(ITEMS))
    nobody = [np.empty(0, np.int64)] * 59
    with pytest.raises(
        RequestError, match=r"finds a share of 0\.\d{3} of the best items of shop/1, less than the required 0.95: use"
    ):
        build_index(of, np.arange(1, ITEMS), (np.arange(1, 60), nobody), (5, 10), title="shop/1")
    monkeypatch.setattr(item_index, "LEAST_RECALL", 0.1)
    assert build_index(of, np.arange(1, ITEMS), (np.arange(1, 60), nobody), (5, 10)).measured is not None
    with pytest.raises(RequestError, match="needs more items and users than the 3 items and 59 known users"):
        build_index(of, np.arange(1, 4), (np.arange(1, 60), nobody))


def test_recall_counts_what_is_as_good_as_the_last() -> None:
    exact = np.array([[3.0, 2.0, 1.0], [5.0, -np.inf, -np.inf]])
    found = Best(np.array([[0, 4, -1], [2, -1, -1]]), np.array([[3.0, 1.0, -np.inf], [5.0, -np.inf, -np.inf]]))
    assert recall_of(found, exact, 3) == pytest.approx((2 / 3 + 1) / 2)
    assert recall_of(found, exact, 1) == 1.0


def test_it_pays_for_many_items_and_many_users() -> None:
    assert pays(10**6, None)
    assert not pays(10**6, 10)
    assert not pays(1_000, None)
