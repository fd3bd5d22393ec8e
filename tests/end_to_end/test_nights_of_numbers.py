"""Nights on ratings: the challenger learns on the champion's scale and is judged by its loss and RMSE."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from mlflow import MlflowClient

from shunter.retraining.comparison import number_of
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.nightly_runs import NightlyResult
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.versions import download, version_by_number
from shunter.tracking.store import tracking_uri

pytestmark = pytest.mark.slow
FIRST = date(2026, 5, 1)


def write(folder: Path, number: int, *, turned: bool) -> None:
    """A day of ratings that follow from users and items; `turned`, by other tastes and 2 higher."""
    random, tastes = np.random.default_rng(number), np.random.default_rng(99 if turned else 42)
    users, items = tastes.normal(0, 1, 60), tastes.normal(0, 1, 40)
    user, item = random.integers(0, 60, 1_500), random.integers(0, 40, 1_500)
    rating = 3 + users[user] + items[item] + random.normal(0, 0.3, 1_500) + 2 * turned
    frame = pl.DataFrame({"rating": rating, "user": [f"u{one}" for one in user], "item": [f"i{one}" for one in item]})
    frame.write_parquet(folder / f"ratings_{FIRST + timedelta(days=number)}.parquet")


def test_a_night_of_numbers_promotes_by_loss_and_rmse(
    tmp_path: Path, furnish: Callable[[Path], Path], prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(furnish(tmp_path / "home")))
    from shunter.retraining.nightly_flow import nightly

    (tmp_path / "schema.yaml").write_text("label: {column: rating, loss: mse}\ncategorical: [user, item]\n")

    def night(number: int) -> NightlyResult:
        given = {"max_epochs": 2, "nightly_epochs": 3, "trials": 1, "ensemble_size": 1, "batch_sizes": "64"}
        return nightly(
            NightlyRequest.model_validate(
                {
                    **given,
                    "data": str(tmp_path / "ratings_{date}.parquet"),
                    "schema_file": str(tmp_path / "schema.yaml"),
                    "day": FIRST + timedelta(days=number),
                    "register_as": "films",
                    "promote": "always",
                }
            )
        )

    for number in range(4):
        write(tmp_path, number, turned=number > 1)
    first = night(1)
    assert (first.outcome, first.champion) == ("first champion", 1)
    second = night(3)
    assert (second.outcome, second.champion) == ("promoted", 2)
    judgement = second.judgement
    assert isinstance(judgement, ChampionComparison)
    assert judgement.champion_rmse is not None
    assert judgement.challenger_rmse is not None
    assert judgement.champion_rmse > judgement.challenger_rmse > 0.3
    assert judgement.saving_low > judgement.needed > 0
    metrics = MlflowClient(tracking_uri()).get_run(second.run_id).data.metrics
    assert metrics["nightly/challenger_rmse"] == metrics["quality/rmse"] == judgement.challenger_rmse
    assert metrics["nightly/champion_relative_loss"] > metrics["nightly/challenger_relative_loss"]
    assert not {"quality/ne", "quality/auc", "nightly/champion_ne", "nightly/challenger_ne"} & metrics.keys()
    files = [download(version_by_number("films", one), tmp_path / f"version-{one}") for one in (1, 2)]
    assert number_of(files[0]) == number_of(files[1])
