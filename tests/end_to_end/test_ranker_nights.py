"""Nights of a graph model: a first champion, one that learned new tastes, one that is no better, and a rollback."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from shunter.engine.job import TrainingJob
from shunter.engine.ranking.evaluation import RankingMetrics
from shunter.engine.ranking.fusion import Fusion
from shunter.errors import RequestError
from shunter.retraining.nightly_request import NightlyRequest
from shunter.tracking.registry.models import load_champion
from shunter.tracking.store import tracking_uri

pytestmark = pytest.mark.slow
FIRST = date(2026, 5, 1)
ITEMS = 30


def write_day(folder: Path, number: int, *, turn: int, users: range) -> None:
    """Clicks of users who like the items of one of three groups; each `turn`, tastes go on to the next group."""
    random = np.random.default_rng(number)
    user, item = random.choice(np.arange(users.start, users.stop), 2_000), random.integers(0, ITEMS, 2_000)
    likes = random.random(2_000) < np.where((user + turn) % 3 == item % 3, 0.5, 0.02)
    frame = pd.DataFrame({"like": likes.astype(int), "who": user, "what": item})
    frame.to_parquet(folder / f"clicks_{FIRST + timedelta(days=number)}.parquet")


def night_of(folder: Path, number: int, **options: object) -> NightlyRequest:
    """A night that is judged on a day, and learns at most two before it."""
    common = {"model": "lightgcn", "trials": 1, "max_epochs": 2, "set": ["embedding_dim=8"], "register_as": "shunter"}
    return NightlyRequest.model_validate(
        {
            **common,
            "data": str(folder / "clicks_{date}.parquet"),
            "schema_file": str(folder / "schema.json"),
            "day": FIRST + timedelta(days=number),
            "train_days": 2,
            **options,
        }
    )


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path], prefect_server: str):
    """Tastes turn on day 3, and ten users come."""
    folder = tmp_path_factory.mktemp("nights")
    (folder / "schema.json").write_text(
        json.dumps({"label": "like", "categorical": ["who", "what"], "user": "who", "item": "what"})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(furnish(folder / "home")))
        from shunter.retraining.nightly_flow import nightly
        from shunter.tasks import fusion

        quality = RankingMetrics(recall20=0.5, ndcg20=0.5, users=40)
        both = Fusion(("ease", "lightgcn"), "z-scores", quality, gain=0.02, low=0.01, high=0.03)
        patch.setattr(fusion, "choose_fusion", lambda *_, **__: both)  # so that there is a member of either kind
        for number in range(3):
            write_day(folder, number, turn=0, users=range(40))
        first = nightly(night_of(folder, 2))
        for number in range(3, 6):
            write_day(folder, number, turn=1, users=range(50))
        started: dict[str, bool] = {}  # whether a member began at the champion's vectors, by family

        def train_member(job: TrainingJob, *arguments: Any, **options: Any) -> Any:
            started[job.spec.family] = job.warm_start is not None and options["expected"] is not None
            return original(job, *arguments, **options)

        from shunter.retraining import ranker_challenger

        original = ranker_challenger.train_member
        patch.setattr(ranker_challenger, "train_member", train_member)
        promoted = nightly(night_of(folder, 5, nightly_epochs=10, learning_rate_share=1.0))
        write_day(folder, 6, turn=1, users=range(50))
        kept = nightly(night_of(folder, 6, margin=0.5))
        yield folder, first, promoted, kept, started


def test_nights_of_a_graph_model(story, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, first, promoted, kept, started = story
    monkeypatch.setenv("SHUNTER_HOME", str(folder / "home"))
    assert (first.outcome, first.champion) == ("first champion", 1)
    assert "NDCG@20" in first.reason
    assert (promoted.outcome, promoted.champion) == ("promoted", 2)
    judgement = promoted.judgement
    assert judgement.challenger_ndcg20 - judgement.champion_ndcg20 == pytest.approx(judgement.gain)
    assert judgement.gain_low > judgement.needed >= 0
    assert judgement.users <= 40  # the champion had not met the others
    assert (kept.outcome, kept.champion) == ("kept", 2)
    client = MlflowClient(tracking_uri())
    run = client.get_run(promoted.run_id).data
    assert run.metrics["nightly/gain_low"] == pytest.approx(judgement.gain_low)
    assert "of 50 values of who" in run.tags["nightly.challenger_origin"]
    assert started == {"ease": False, "lightgcn": True}
    assert "lightgcn begins at the champion's vectors" in run.tags["nightly.challenger_origin"]
    version = client.get_model_version("shunter", "2")
    assert version.tags["nightly.learned_days"] == "2026-05-01,2026-05-02,2026-05-04,2026-05-05"
    old, new = ({"who": 45, "what": item} for item in (0, 1))  # of one who came later; the turned taste likes 1
    scores = load_champion().predict(pd.DataFrame([old, new]))
    assert scores[1] > scores[0]
    from shunter.flows.rollback import rollback

    rollback()
    assert {name: int(v) for name, v in client.get_registered_model("shunter").aliases.items()}["champion"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"learn_last_day": True}, "leave out --learn-last-day"), ({"min_auc": 0.7, "model": "dlrm"}, "--min-auc")],
)
def test_what_a_night_of_a_graph_model_cannot_do_is_refused(tmp_path: Path, options: dict, message: str) -> None:
    from shunter.retraining.ranker_challenger import check_ranking_request

    with pytest.raises(RequestError, match=message):
        check_ranking_request(night_of(tmp_path, 2, **options))
