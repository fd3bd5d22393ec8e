"""Champion and challenger that rank: compared on the users that both know, in ids that differ."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.warm_start import SharedRows
from shunter.engine.config import Schedule
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.interactions import read_interactions
from shunter.engine.ranking.storage import StoredRanker, save_ranker
from shunter.errors import DataError, RequestError
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.tracking.registry import ranker_comparison
from shunter.tracking.registry.ranker_comparison import RankingComparison, compare_rankers
from shunter.tracking.registry.ranker_origins import (
    RankerOrigin,
    RankerOrigins,
    challenger_tags,
    origins_of,
    ranker_tags,
)
from shunter.tracking.registry.versions import ModelFiles, Version
from tests.engine.ranking.data import ITEMS, USERS, write_clicks

ASKED: dict[str, Any] = {"margin": 0.0, "confidence": 0.95, "seed": 0}


def store(scores: torch.Tensor, folder: Path, dataset: Any, *, known: range) -> Path:
    """A ranker of any scores `[users, items]` that has learned something of some users."""
    users, items = scores.shape
    degrees = torch.zeros(users, dtype=torch.int64)
    degrees[known.start : known.stop] = 1
    ranker = VectorRanker(torch.eye(users), scores.T.contiguous(), degrees, torch.ones(items, dtype=torch.int64))
    spec = graph_spec(embedding_dim=users)
    save_ranker(StoredRanker(ranker=ranker, spec=spec, features=dataset.features, user="user", item="item"), folder)
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    return write_clicks(tmp_path / "clicks")


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> dict[str, SharedRows]:
    """Ids of the champion run backwards, and it lacks the last five items."""
    users, items = np.arange(USERS + 1), np.arange(ITEMS + 1 - 5)
    rows = {
        "user": SharedRows(users, np.concatenate([[0], users[1:][::-1]])),
        "item": SharedRows(items, np.concatenate([[0], items[1:][::-1]])),
    }
    monkeypatch.setattr(ranker_comparison, "shared_rows", lambda *_: rows)
    monkeypatch.setattr(ranker_comparison.Encoder, "load", lambda _: None)
    return rows


def test_both_are_judged_on_the_users_that_both_know(dataset: Any, translated: dict, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    former, now = (torch.randn(USERS + 1, ITEMS + 1, generator=generator) for _ in range(2))
    champion = store(former, tmp_path / "champion", dataset, known=range(1, USERS + 1))
    challenger = store(now, tmp_path / "challenger", dataset, known=range(1, 21))
    found, gains = compare_rankers(dataset, ModelFiles(champion, tmp_path), challenger, **ASKED)
    parts = [
        set(zip(one.users, one.items, strict=True))
        for one in (read_interactions(dataset, part) for part in ("train", "validation", "test"))
    ]
    seen, chosen = parts[0] | parts[1], {(user, item) for user, item in parts[2] if user <= 20}
    in_new_ids = torch.full_like(now, -torch.inf)
    for side_now, side_former in zip(translated["user"].now, translated["user"].former, strict=True):
        items = translated["item"]
        in_new_ids[side_now, items.now[1:]] = former[side_former, items.former[1:]]
    for scores, figure in ((in_new_ids, found.champion_ndcg20), (now, found.challenger_ndcg20)):
        assert figure == pytest.approx(_mean_ndcg(scores, chosen, seen))
    assert found.users == len({user for user, _ in chosen - seen})
    assert found.gain == pytest.approx(found.challenger_ndcg20 - found.champion_ndcg20)
    assert found.gain_low < found.gain < found.gain_high
    assert found.is_better == (found.gain_low > 0)
    assert gains.min() < found.gain_low < gains.max()
    assert f"{found.users} users" in found.explain()
    assert RankingComparison.model_validate_json(found.model_dump_json()) == found


def test_repeated_pairs_count_where_the_champion_was_chosen_with_them(
    dataset: Any, translated: dict, tmp_path: Path
) -> None:
    scores = torch.randn(USERS + 1, ITEMS + 1, generator=torch.Generator().manual_seed(1))
    challenger = store(scores, tmp_path / "challenger", dataset, known=range(1, USERS + 1))
    found, _ = compare_rankers(dataset, ModelFiles(challenger, tmp_path), challenger, **ASKED, repeats="keep")
    chosen = read_interactions(dataset, "test")
    pairs = set(zip(chosen.users.tolist(), chosen.items.tolist(), strict=True))
    assert found.challenger_ndcg20 == pytest.approx(_mean_ndcg(scores, pairs, set()))


def _mean_ndcg(scores: torch.Tensor, chosen: set, seen: set) -> float:
    """By loops; an item without a score is in no list."""
    gains = []
    for user in sorted({user for user, _ in chosen - seen}):
        wanted = {item for one, item in chosen - seen if one == user}
        left = [item for item in range(1, ITEMS + 1) if (user, item) not in seen and scores[user, item] > -torch.inf]
        shown = sorted(left, key=lambda item: (-scores[user, item].item(), item))[:20]
        gain = sum(1 / np.log2(rank + 2) for rank, item in enumerate(shown) if item in wanted)
        gains.append(gain / sum(1 / np.log2(rank + 2) for rank in range(min(20, len(wanted)))))
    return float(np.mean(gains))


def test_a_better_ranking_is_found_to_be_better(dataset: Any, translated: dict, tmp_path: Path) -> None:
    groups = (torch.arange(USERS + 1)[:, None] % 3 == torch.arange(ITEMS + 1)[None] % 3).float()
    champion = store(torch.zeros_like(groups), tmp_path / "champion", dataset, known=range(1, USERS + 1))
    challenger = store(groups, tmp_path / "challenger", dataset, known=range(1, USERS + 1))
    found, _ = compare_rankers(dataset, ModelFiles(champion, tmp_path), challenger, **ASKED)
    assert found.is_better
    assert found.challenger_ndcg20 > found.popularity_ndcg20
    worse, _ = compare_rankers(dataset, ModelFiles(challenger, tmp_path), challenger, **ASKED)
    assert worse.challenger_ndcg20 == found.challenger_ndcg20


def test_nobody_that_both_know_is_an_error_that_says_so(dataset: Any, translated: dict, tmp_path: Path) -> None:
    scores = torch.zeros(USERS + 1, ITEMS + 1)
    champion = store(scores, tmp_path / "champion", dataset, known=range(0))
    with pytest.raises(DataError, match="No user known to both champion and challenger"):
        compare_rankers(dataset, ModelFiles(champion, tmp_path), champion, **ASKED)


def version(tags: dict[str, str]) -> Version:
    return Version(name="shop", version=3, run_id="", tags=tags)


def test_a_version_says_what_its_members_were_learned_with() -> None:
    schedule = Schedule(repeats="keep")
    members = [
        SimpleNamespace(
            spec=graph_spec("ease"), hyperparameters=RankingHyperparameters(), best_epoch=1, schedule=schedule
        ),
        SimpleNamespace(
            spec=graph_spec("simplex", embedding_dim=16),
            hyperparameters=RankingHyperparameters(learning_rate=0.5, batch_scale=2),
            best_epoch=7,
            schedule=schedule,
        ),
    ]
    found = origins_of(version(ranker_tags(members, "z-scores")))  # pyright: ignore[reportArgumentType]
    ease, simplex = found.members
    assert (found.by, found.repeats) == ("z-scores", "keep")
    assert simplex == RankerOrigin(1, members[1].spec, members[1].hyperparameters, 7)
    assert (ease.member, ease.spec.family) == (0, "ease")
    assert origins_of(version(challenger_tags(found))) == found
    assert isinstance(found, RankerOrigins)


def test_a_version_from_before_is_refused() -> None:
    with pytest.raises(RequestError, match="'shop'"):
        origins_of(version({}))
