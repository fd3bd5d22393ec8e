"""Nights on generated clicks: a challenger must earn its place, a day judges once, a failed night goes on."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from mlflow import MlflowClient
from scipy.special import expit

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.errors import RequestError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.days import DaysSource, open_day
from shunter.models.ensemble import Ensemble
from shunter.models.registry import model_spec
from shunter.planner.history import read_history
from shunter.retraining.nightly_request import NightlyRequest
from shunter.settings import Settings
from shunter.tracking.registry.models import RegisteredModel, load_champion, register_model
from shunter.tracking.runs import start_run
from shunter.tracking.store import experiment_ids, tracking_uri
from tests.golden.homes import reproducible
from tests.golden.whole_runs import assert_run_as_recorded

pytestmark = pytest.mark.slow
FIRST = date(2026, 5, 1)
USERS, ITEMS = 60, 40


class Log:
    """A log in a folder, and the requests that read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "logs").mkdir()
        schema = {"label": "click", "numeric": ["price"], "categorical": ["user", "item"]}
        (folder / "schema.json").write_text(json.dumps(schema))

    def write(self, number: int, *, turned: bool = False, rows: int = 1_500) -> Path:
        """A day of clicks that follow from a taste of each user and item; `turned`, tastes are others than before."""
        random, tastes = np.random.default_rng(number), np.random.default_rng(99 if turned else 42)
        users, items = tastes.normal(0, 1.5, USERS), tastes.normal(0, 1.5, ITEMS)
        user, item = random.integers(0, USERS, rows), random.integers(0, ITEMS, rows)
        frame = pl.DataFrame(
            {
                "click": (random.random(rows) < expit(users[user] + items[item] - 1)).astype(int),
                "price": random.gamma(2.0, 10.0, rows),
                "user": [f"u{one}" for one in user],
                "item": [f"i{one}" for one in item],
            }
        )
        path = self.folder / "logs" / f"clicks_{FIRST + timedelta(days=number)}.parquet"
        frame.write_parquet(path)
        return path

    def request(self, number: int, **options: object) -> NightlyRequest:
        """A night that is judged on a day."""
        common = {"schema_file": str(self.folder / "schema.json"), "max_epochs": 2, "trials": 1, "ensemble_size": 1}
        common["batch_sizes"] = "64"
        common["promote"] = "always"  # of new tastes a night learns too little to beat the base rate
        common["register_as"] = "shunter"
        data = str(self.folder / "logs" / "clicks_{date}.parquet")
        day = FIRST + timedelta(days=number)
        return NightlyRequest.model_validate({**common, "data": data, "day": day, **options})

    def champion(self, *numbers: int) -> RegisteredModel:
        """Register an ensemble that has learned some days, as a training by hand would."""
        days = tuple(
            open_day(FIRST + timedelta(days=number), [self.write(number)], None, str(self.folder / "schema.json"))
            for number in numbers
        )
        dataset, _ = ingest_source(DaysSource("log", days), Settings().cache_directory, 0, 0.01)
        spec = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,))
        members = [
            train(
                TrainingJob(
                    dataset, spec, Hyperparameters(), Execution(batch_size=64), Schedule(max_epochs=2, seed=seed)
                )
            ).model
            for seed in (0, 1)
        ]
        save_model(Ensemble(members, [0.5, 0.5]), self.folder / "champion")
        run = start_run("by hand", "train")
        return register_model(run, dataset, self.folder / "champion", "shunter", metrics={})


def experiments() -> list[str]:
    return experiment_ids(MlflowClient(tracking_uri()))


def aliases() -> dict[str, int]:
    return {k: int(v) for k, v in MlflowClient(tracking_uri()).get_registered_model("shunter").aliases.items()}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path], prefect_server: str):
    """Tastes turn on day 2: the night of day 3 fails halfway and is run again, then once more, then day 4 comes."""
    folder = tmp_path_factory.mktemp("nights")
    log = Log(folder)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("SHUNTER_HOME", str(furnish(folder / "home")))
        from shunter.retraining.nightly_flow import nightly

        stack.enter_context(reproducible())
        log.champion(0, 1)
        for number in (2, 3):
            log.write(number, turned=True)
        obstacle = Settings().nights_directory / "shunter" / "state" / "judgement.png"
        obstacle.mkdir(parents=True)  # the picture cannot be written over a folder
        with pytest.raises(OSError, match="directory"):
            nightly(log.request(3))
        failed = (aliases(), MlflowClient(tracking_uri()).search_runs(experiments(), "tags.`run.kind` = 'nightly'"))
        obstacle.rmdir()
        promoted = nightly(log.request(3))
        again = nightly(log.request(3))
        log.write(4, turned=True)
        kept = nightly(log.request(4, margin=0.5, learn_last_day=True))
        yield log, failed, promoted, again, kept


@pytest.fixture
def home(story, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHUNTER_HOME", str(story[0].folder / "home"))
    return story


def test_better_challenger_takes_the_place_and_says_why(home) -> None:
    _, _, promoted, _, _ = home
    assert promoted.outcome == "promoted"
    assert promoted.judgement is not None
    assert promoted.judgement.saving_low > promoted.judgement.needed > 0
    client = MlflowClient(tracking_uri())
    version = client.get_model_version("shunter", "2")
    assert version.description == promoted.reason
    assert version.tags["champion.before"] == "1"
    assert version.tags["nightly.learned_days"] == "2026-05-01,2026-05-02,2026-05-03"
    run = client.get_run(promoted.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["nightly.outcome"] == "promoted"
    assert run.data.metrics["nightly/saving_low"] == pytest.approx(promoted.judgement.saving_low)
    assert "nightly.challenger_origin" in run.data.tags
    artifacts = {
        one.path for folder in ("config", "pictures") for one in client.list_artifacts(run.info.run_id, folder)
    }
    assert {"config/plan.json", "config/judgement.json", "config/night.json", "pictures/judgement.png"} <= artifacts
    frame = pl.read_parquet(next((home[0].folder / "logs").glob("*"))).to_pandas()
    assert load_champion("shunter").predict(frame.head(5)).shape == (5,)


@pytest.mark.parametrize(("night", "case"), [(2, "night promoted"), (4, "night kept")])
def test_a_night_has_the_recorded_challengers_and_judgement(home, night: int, case: str) -> None:
    assert_run_as_recorded(case, MlflowClient(tracking_uri()), home[night].run_id)


def test_failed_night_promotes_nothing_and_the_next_one_goes_on_with_it(home) -> None:
    _, (aliases_then, runs_then), promoted, _, _ = home
    assert aliases_then == {"champion": 1}
    assert [run.info.status for run in runs_then] == ["FAILED"]
    assert promoted.run_id == runs_then[0].info.run_id
    children = MlflowClient(tracking_uri()).search_runs(experiments(), f"tags.mlflow.parentRunId = '{promoted.run_id}'")
    assert len(children) == 1, "what was trained before the failure is not trained again"


def test_each_night_teaches_what_it_did_and_what_its_steps_took(home) -> None:
    _, _, promoted, _, kept = home
    history = read_history()
    nights = {run.run_id: run for run in history.runs if run.kind == "nightly"}
    assert set(nights) == {promoted.run_id, kept.run_id}
    for run in nights.values():
        assert run.outcome == "reached"
        assert run.data
        assert run.epochs is not None
        assert run.measured.seconds is not None
        assert run.predicted.seconds is not None
    assert nights[promoted.run_id].steps, "the probes of its choice, which the next night does not repeat"
    challengers = [run for run in history.runs if run.kind == "member"]
    assert len(challengers) == 3
    assert all(len(run.steps) == 1 for run in challengers)
    assert {run.data for run in challengers} == {nights[promoted.run_id].data}


def test_second_night_of_a_day_changes_nothing_and_says_so(home) -> None:
    _, _, promoted, again, _ = home
    assert again.outcome == "already judged"
    assert "nothing has changed" in again.reason
    assert (again.run_id, again.champion) == (promoted.run_id, 2)


def test_clock_that_was_set_back_changes_nothing_and_is_said(home, monkeypatch: pytest.MonkeyPatch) -> None:
    from shunter.retraining.nightly_flow import nightly

    log, kept = home[0], home[4]
    monkeypatch.setattr("shunter.retraining.nightly_flow.yesterday", lambda now, zone: FIRST + timedelta(days=2))
    before = len(MlflowClient(tracking_uri()).search_runs(experiments()))
    night = nightly(log.request(2, day=None))
    assert night.outcome == "already judged"
    assert f"but {kept.day} was an evaluation day already" in night.reason
    assert len(MlflowClient(tracking_uri()).search_runs(experiments())) == before
    assert night.champion == kept.champion


def test_challenger_that_saves_less_than_the_margin_is_not_registered(home) -> None:
    kept = home[4]
    assert kept.outcome == "kept"
    assert kept.champion == 2
    assert "Training on the evaluation day brought no gain" in kept.reason
    assert len(MlflowClient(tracking_uri()).search_model_versions("name = 'shunter'")) == 2
    tags = MlflowClient(tracking_uri()).get_run(kept.run_id).data.tags
    assert tags["nightly.training_days"] == "2026-05-04", "only the day that the champion has not learned"


def test_no_state_and_no_data_of_a_finished_night_is_left(home) -> None:
    assert not (Settings().nights_directory / "shunter" / "state").exists()
    assert len([path for path in Settings().cache_directory.iterdir() if (path / "dataset.json").exists()]) == 1


def test_rollback_by_command_puts_the_former_champion_back_and_is_kept_in_mlflow(home) -> None:
    from shunter.flows.rollback import rollback

    done = rollback.fn()
    assert (done.replaced, done.champion) == (2, 1)
    assert done.explanation == "Version 1 of 'shunter' is the champion again, in place of version 2."
    assert aliases() == {"champion": 1}
    tags = MlflowClient(tracking_uri()).get_run(done.run_id).data.tags
    assert (tags["run.kind"], tags["rollback.from"], tags["rollback.to"]) == ("rollback", "2", "1")
    with pytest.raises(RequestError, match="cannot be rolled back"):
        rollback.fn()
    assert rollback.fn(to=2).champion == 2
    assert aliases() == {"champion": 2, "previous": 1}


def test_first_night_trains_and_registers_a_champion(tmp_path: Path, furnished_home: Path, prefect_server: str) -> None:
    from shunter.retraining.nightly_flow import nightly

    log = Log(tmp_path)
    for number in (0, 1):
        log.write(number, rows=600)
    night = nightly(log.request(1, max_epochs=1))
    assert night.outcome == "first champion"
    assert (night.champion, night.registered) == (1, 1)
    assert aliases() == {"champion": 1}
    client = MlflowClient(tracking_uri())
    assert client.get_model_version("shunter", "1").tags["nightly.learned_days"] == "2026-05-01"
    training = client.get_run(client.get_run(night.run_id).data.tags["nightly.training_run"])
    assert training.data.params["data.test_rows"] == "600"
    assert nightly(log.request(1)).outcome == "already judged"
