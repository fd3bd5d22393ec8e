"""When a champion that a constant beats makes room, and what the picture of a comparison says came of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from shunter.engine.metrics import row_losses
from shunter.reporting.card.figures import QualityFigure, TaskQuality
from shunter.retraining import challenger
from shunter.retraining.challenger import NightlyContext
from shunter.retraining.comparison import draw_comparison, title_of
from shunter.retraining.nightly_request import NightlyRequest
from shunter.tracking.registry.champion_comparison import ChampionComparison, compare_losses
from shunter.tracking.registry.ranker_comparison import RankingComparison
from tests.tracking.test_convention import PLACEMENT

LABELS = (np.arange(400) < 120).astype(float)
DATASET: Any = SimpleNamespace(splits={"test": SimpleNamespace(base_rate=0.3)})
TONIGHT: Any = SimpleNamespace(request=NightlyRequest())
TRAINED: Any = SimpleNamespace(placement=PLACEMENT, directory=None)


def judgement(champion_logit: float, challenger_logit: float) -> ChampionComparison:
    """Of two constants, with a margin that neither reaches."""
    champion, challenger = (row_losses(LABELS, np.full(400, logit)) for logit in (champion_logit, challenger_logit))
    return compare_losses(champion, challenger, margin=0.9, confidence=0.95, seed=0)


def quality(low: float, high: float) -> tuple[TaskQuality, ...]:
    ne = QualityFigure(task="", name="ne", value=(low + high) / 2, low=low, high=high)
    return (TaskQuality(task="", figures=(ne,), reliability=(), calibration_error=0.0, rows=400, positives=120),)


@pytest.mark.parametrize(
    ("champion_logit", "challenger_logit", "challenger_ne", "expected"),
    [
        (1.0, -0.85, (0.9, 0.99), True),
        (1.0, -0.85, (0.9, 1.01), False),  # the challenger may be no better than the base rate either
        (1.0, 1.5, (0.9, 0.99), False),  # and this one is worse
    ],
)
def test_a_champion_beaten_by_the_base_rate_makes_room(
    monkeypatch: pytest.MonkeyPatch,
    champion_logit: float,
    challenger_logit: float,
    challenger_ne: tuple[float, float],
    expected: bool,
) -> None:
    monkeypatch.setattr(challenger, "quality_of_files", lambda *_, **__: quality(*challenger_ne))
    found = judgement(champion_logit, challenger_logit)
    assert not found.is_better
    assert challenger._has_overtaken(TONIGHT, found, TRAINED, DATASET) is expected


@pytest.mark.parametrize("when_broken", ["keep", "rollback"])
def test_such_a_champion_makes_no_room_where_that_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, when_broken: str
) -> None:
    monkeypatch.setattr(challenger, "quality_of_files", lambda *_, **__: quality(0.9, 0.99))
    context: Any = SimpleNamespace(request=NightlyRequest(when_broken=when_broken))
    assert not challenger._has_overtaken(context, judgement(1.0, -0.85), TRAINED, DATASET)


def test_a_champion_that_beats_the_base_rate_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenger, "quality_of_files", lambda *_, **__: quality(0.8, 0.9))
    useful = judgement(1.0, -0.85).model_copy(update={"champion_logloss": 0.6})
    assert not challenger._has_overtaken(TONIGHT, useful, TRAINED, DATASET)


@pytest.mark.parametrize("outcome", ["kept", "promoted"])
def test_picture_tells_the_outcome_of_the_night_and_not_that_of_the_comparison(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: Literal["kept", "promoted"]
) -> None:
    better = judgement(1.0, -0.85).model_copy(update={"is_better": True})
    night: Any = NightlyContext(TONIGHT.request, Any, {}, Any, "run", Any)  # pyright: ignore[reportArgumentType]
    object.__setattr__(night, "state", SimpleNamespace(directory=tmp_path))
    np.save(night.gains_file("judgement"), np.linspace(0, 1, 50))
    titles, kept = list[str](), list[Path]()
    monkeypatch.setattr("matplotlib.axes.Axes.set_title", lambda _, title: titles.append(title))
    monkeypatch.setattr(challenger, "log_pictures", lambda _, pictures: kept.extend(pictures))
    night.draw("judgement", better, outcome)
    assert titles == [title_of(outcome, "400 rows")]
    assert outcome in titles[0].lower()
    assert ({"kept", "promoted"} - {outcome}).pop() not in titles[0].lower()
    assert kept == [tmp_path / "judgement.png"]


def test_picture_of_ranking_models_tells_users_and_the_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures = dict.fromkeys(("popularity_ndcg20", "gain_low", "gain_high", "needed"), 0.01)
    better = RankingComparison(
        users=50, champion_ndcg20=0.2, challenger_ndcg20=0.3, gain=0.1, confidence=0.95, is_better=True, **figures
    )
    titles, labels = list[str](), list[str]()
    monkeypatch.setattr("matplotlib.axes.Axes.set_title", lambda _, title: titles.append(title))
    monkeypatch.setattr("matplotlib.axes.Axes.set_xlabel", lambda _, label: labels.append(label))
    path = draw_comparison(better, np.linspace(0, 0.2, 50), tmp_path / "judgement.png", "kept")
    assert path.stat().st_size > 0
    title = title_of("kept", "50 users")
    assert titles == [title]
    assert "NDCG@20" in labels[0]
