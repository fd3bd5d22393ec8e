"""The promise of a version, held against a day that it has not learned."""

from collections.abc import Mapping
from datetime import date
from unittest import mock

import numpy as np
import pytest

from shunter.engine.checkpoint.storage import save_model
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.days import DayLog, DaysSource, open_day
from shunter.models.registry import build_model, model_spec
from shunter.retraining.comparison import losses_of, scores_of
from shunter.retraining.degradation import check_day, promise_tags
from shunter.tracking.registry.versions import ModelFiles, Version

SOME_OF_THE_TABLES = 140 << 10  # bytes; they have 36 rows of 4,096
DAY = date(2026, 5, 1)
SURE = {"promise.min_auc": "0.9", "promise.confidence": "0.95", "promise.unit": "user"}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelFiles, DayLog]:
    """A model that has learned nothing, so that it can promise no more than chance."""
    folder = tmp_path_factory.mktemp("day")
    random = np.random.default_rng(0)
    rows = "".join(f"{random.integers(2)},{random.normal():.3f},u{row % 30},i{row % 4}\n" for row in range(300))
    (folder / "day.csv").write_text("click,price,user,item\n" + rows)
    (folder / "schema.yaml").write_text("label: click\nnumeric: [price]\ncategorical: [user, item]\n")
    log = open_day(DAY, [folder / "day.csv"], None, str(folder / "schema.yaml"))
    dataset, _ = ingest_source(DaysSource("log", (log,)), folder / "cache", 0, 0.01)
    save_model(build_model(model_spec(embedding_dim=1_024), dataset.features).eval(), folder / "model")
    return ModelFiles(folder / "model", dataset.directory / "encoder"), log


def version(tags: Mapping[str, str]) -> Version:
    return Version("shop", 3, "run", dict(tags))


def test_a_day_that_contradicts_it_breaks_it(given: tuple[ModelFiles, DayLog]) -> None:
    check = check_day(version(SURE), *given, DAY)
    assert check is not None
    assert check.is_broken
    assert not check.is_sure
    assert check.bounds.units == 30
    assert "2026" in check.words
    assert "shunter rollback" in check.words
    assert check.finding.kind == "promise"
    assert check.metrics["nightly.promise.is_broken"] == 1


def test_a_day_that_says_little_breaks_nothing(given: tuple[ModelFiles, DayLog]) -> None:
    check = check_day(version({**SURE, "promise.min_auc": "0.5"}), *given, DAY)
    assert check is not None
    assert not check.is_broken


def test_an_entropy_is_held_too(given: tuple[ModelFiles, DayLog]) -> None:
    tags = {"promise.max_ne": "3.0", "promise.confidence": "0.95"}
    check = check_day(version(tags), *given, DAY)
    assert check is not None
    assert check.is_sure
    assert "keeps its promise" in check.words


def test_without_a_promise_nothing_is_scored(given: tuple[ModelFiles, DayLog]) -> None:
    assert check_day(version({}), *given, DAY) is None
    assert promise_tags({}) == {}
    assert promise_tags({**SURE, "promise.words": "text", "other": "1"}) == SURE


def test_losses_are_those_of_the_scores(given: tuple[ModelFiles, DayLog], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the memory that is free has no room for the embedding tables."""
    labels, logits, users = scores_of(*given, unit="user")
    assert users is not None
    assert len(np.unique(users)) == 30
    np.testing.assert_allclose(losses_of(*given), np.logaddexp(0, logits.astype(float)) - labels * logits, rtol=1e-6)
    assert scores_of(*given, unit="absent")[2] is None
    forbidden = mock.Mock(side_effect=AssertionError("the tables are loaded whole"))
    monkeypatch.setattr(
        "shunter.engine.checkpoint.scoring.available_memory_bytes", lambda device: 2 * SOME_OF_THE_TABLES
    )
    monkeypatch.setattr("shunter.retraining.comparison.load_model", forbidden)
    monkeypatch.setattr("shunter.extensions.tiers.stored_models.load_model", forbidden)
    monkeypatch.setattr("shunter.engine.checkpoint.scoring.LARGEST_SHARE", 0.5)
    np.testing.assert_array_equal(scores_of(*given)[1], logits)
