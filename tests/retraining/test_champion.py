"""What is gone on from: settings read back as they were written, smaller steps, days that are kept."""

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml

from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.config import Hyperparameters
from shunter.errors import RequestError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.days import DaysSource, open_day
from shunter.ingestion.sources.open import numbered
from shunter.models.registry import model_spec
from shunter.models.spec import NumberLabel
from shunter.requests import Promote
from shunter.retraining.champion import (
    LEARNED_DAYS,
    MOST_DAYS_KEPT,
    Champion,
    check_same_log,
    parse_hyperparameters,
    version_tags,
    with_lower_rates,
)
from shunter.retraining.nightly_request import NightlyRequest
from shunter.tracking.convention import model_params
from shunter.tracking.registry.versions import ModelFiles, Version


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dense_optimizer": "adagrad", "dense_learning_rate": 3e-4, "weight_decay": 1e-6},
        {"embedding_l2": 0.5, "embedding_initial_bound": 0.01},
    ],
)
def test_settings_are_read_back_from_a_run_as_they_were_written(options: dict) -> None:
    settings = replace(Hyperparameters(), **options)
    params = {name: str(value) for name, value in model_params(model_spec(), settings).items()}
    assert parse_hyperparameters(params) == settings


def test_challenger_takes_smaller_steps_and_is_else_the_same() -> None:
    settings = Hyperparameters(dense_learning_rate=0.3, embedding_learning_rate=0.6, embedding_l2=0.1)
    assert with_lower_rates(settings, 0.5) == replace(settings, dense_learning_rate=0.15, embedding_learning_rate=0.3)


def test_newest_learned_days_are_kept_and_fit_into_a_tag() -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(MOST_DAYS_KEPT + 5)]
    text = version_tags(days, None)[LEARNED_DAYS]
    assert text.split(",") == [day.isoformat() for day in days[5:]]
    assert len(text) <= 5_000


def test_first_training_asks_for_what_the_night_asks_for() -> None:
    request = NightlyRequest(data="logs/{date}.csv", register_as="mine", trials=2, seed=5, model="dcnv2")
    first = request.first_training("a.csv,b.csv")
    assert NightlyRequest(promote="always").first_training("log.csv").promote == Promote.ALWAYS
    assert (first.data, first.register_as, first.search.trials, first.seed) == ("a.csv,b.csv", "mine", 2, 5)
    assert first.model == "dcnv2"


def test_time_zone_and_name_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="no such time zone"):
        NightlyRequest(timezone="Europe/Nowhere")
    with pytest.raises(ValueError, match="register_as"):
        NightlyRequest(register_as="../else")


def test_a_champion_of_another_log_is_not_gone_on_from(tmp_path: Path) -> None:
    rows = "".join(f"{row % 2},{row},u{row % 3},i{row % 4}\n" for row in range(60))
    (tmp_path / "day.csv").write_text("click,price,user,item\n" + rows)
    (tmp_path / "schema.yaml").write_text("label: click\nnumeric: [price]\ncategorical: [user, item]\n")
    log = open_day(date(2026, 5, 1), [tmp_path / "day.csv"], None, str(tmp_path / "schema.yaml"))
    dataset, _ = ingest_source(DaysSource("log", (log,)), tmp_path / "cache", 0, 0.01)
    files = ModelFiles(tmp_path / "model", dataset.directory / "encoder")
    champion = Champion(Version("shop", 3, "run", {}), files, frozenset())
    files.model.mkdir()
    write_json(files.model / "model.json", json.dumps({"features": dataset.features.to_dict(), "members": []}))
    check_same_log(champion, log.schema, "shop")
    grown = log.schema.model_copy(update={"numeric": ("price", "age", "height", "width")})
    check_same_log(champion, grown, "shop")  # columns that come are no other log
    crossed = {"numeric": ["price"], "categorical": [{"column": "both", "cross": ["user", "item"]}], "label": "click"}
    (tmp_path / "crosses.yaml").write_text(yaml.safe_dump(crossed))
    of_crosses = open_day(date(2026, 5, 1), [tmp_path / "day.csv"], None, str(tmp_path / "crosses.yaml"))
    dataset, _ = ingest_source(DaysSource("log", (of_crosses,)), tmp_path / "cache", 0, 0.01)
    files = ModelFiles(tmp_path / "model", dataset.directory / "encoder")
    check_same_log(Champion(Version("shop", 1, "run", {}), files, frozenset()), of_crosses.schema, "shop")
    other = log.schema.model_copy(update={"numeric": ("user_age",), "categorical": (log.schema.categorical[0],)})
    with pytest.raises(RequestError, match="version 3, was trained on the columns price, user, item, but these days"):
        check_same_log(champion, other, "shop")
    of_number = replace(dataset.features, number=NumberLabel(loss="mse"))
    write_json(files.model / "model.json", json.dumps({"features": of_number.to_dict(), "members": []}))
    with pytest.raises(RequestError):  # its outputs are no log odds
        check_same_log(champion, log.schema, "shop")
    check_same_log(champion, numbered(log.schema, "mse"), "shop")
    with pytest.raises(RequestError):
        check_same_log(champion, numbered(log.schema, "huber"), "shop")
