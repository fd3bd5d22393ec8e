"""What is gone on from: settings read back as they were written, smaller steps, days that are kept."""

from dataclasses import replace
from datetime import date, timedelta

import pytest

from engine.config import Hyperparameters
from models.registry import model_spec
from retraining.champion import LEARNED_DAYS, MOST_DAYS_KEPT, parse_hyperparameters, slowed, version_tags
from shunter.requests import NightlyRequest
from tracking.convention import model_params


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
    assert slowed(settings, 0.5) == replace(settings, dense_learning_rate=0.15, embedding_learning_rate=0.3)


def test_newest_learned_days_are_kept_and_fit_into_a_tag() -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(MOST_DAYS_KEPT + 5)]
    text = version_tags(days, None)[LEARNED_DAYS]
    assert text.split(",") == [day.isoformat() for day in days[5:]]
    assert len(text) <= 5_000


def test_first_training_asks_for_what_the_night_asks_for() -> None:
    request = NightlyRequest(data="logs/{date}.csv", register_as="mine", trials=2, seed=5, model="dcnv2")
    first = request.first_training("a.csv,b.csv")
    assert (first.data, first.register_as, first.search.trials, first.seed) == ("a.csv,b.csv", "mine", 2, 5)
    assert first.model == "dcnv2"


def test_time_zone_and_name_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="no such time zone"):
        NightlyRequest(timezone="Europe/Nowhere")
    with pytest.raises(ValueError, match="register_as"):
        NightlyRequest(register_as="../else")
