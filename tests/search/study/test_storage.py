"""The record of the trials: whose they are, what came of them, and storages that fail, all with real files."""

import contextlib
import os
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from shunter.errors import RequestError, TrackingError
from shunter.search.protocol import Outcome
from shunter.search.result import ranked
from shunter.search.search import check_not_empty
from shunter.search.space.settings import SearchSpace
from shunter.search.study import storage as studies
from shunter.search.study.address import storage_address
from shunter.search.study.interrupted import OWNER
from shunter.search.study.storage import (
    begun_trials,
    failures,
    finished_trials,
    open_study,
    outcome_of,
    record,
    storage_errors,
    tell,
)
from tests.faults.damage import Damage, cut, garbage

SPACE = SearchSpace(embedding_dims=(4, 8), top_widths=(8, 16), bottom_widths=())
POINT = SPACE.default()


def outcome(ne: float, **others: object) -> Outcome:
    return Outcome(state="complete", validation_ne=ne, **others)  # type: ignore[arg-type]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return storage_address(tmp_path, None)


@pytest.fixture
def limited_file_size(tmp_path: Path) -> Iterator[None]:
    """What a full disk is to a database: no file may grow above 64 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_outcome_is_read_back_as_it_was_told(address: str) -> None:
    told = [
        outcome(0.8, costs={"step_seconds": 0.01, "parameter_bytes": 400.0}, violations={"min_auc": 0.1}, seconds=3.0),
        Outcome(state="pruned", validation_ne=0.95, costs={"step_seconds": 0.02}, seconds=1.0, joules=5.0),
        Outcome(state="failed", seconds=0.5),
    ]
    study = open_study(address, SPACE, cost="step_seconds")
    for one in told:
        trial = record(study, POINT)
        assert SPACE.suggest(trial) == POINT
        if one.state == "failed":
            trial.set_user_attr(studies.FAILURE, "The loss is no number.")
        tell(study, trial, one, "step_seconds")
    again = open_study(address, SPACE, cost="step_seconds")
    assert [outcome_of(trial) for trial in again.trials] == told
    assert failures(again) == ["The loss is no number."]
    assert len(finished_trials(again)) == len(begun_trials(again)) == 3
    assert again.trials[0].values == [0.8, 0.01]
    assert again.metric_names == ["validation_ne", "step_seconds"]
    assert again.best_trials == []  # Optuna knows that the limit is broken


def test_settings_that_keep_the_limits_come_first_then_the_nearest(address: str) -> None:
    study = open_study(address, SPACE)
    for ne, missing in ((0.70, 0.2), (0.71, 0.05), (0.80, -0.1), (0.79, 0.0)):
        trial = record(study, POINT)
        SPACE.suggest(trial)
        tell(study, trial, outcome(ne, violations={"min_auc": missing}), None)
    settings = ranked(study, SPACE, None)
    assert [setting.trial_number for setting in settings] == [3, 2, 1, 0]
    assert [setting.is_feasible for setting in settings] == [True, True, False, False]


def test_with_a_cost_a_cheap_setting_comes_before_one_that_is_hardly_better(address: str) -> None:
    study = open_study(address, SPACE, cost="parameter_bytes")
    for ne, size in ((0.800, 1e6), (0.801, 1e5), (0.9, 1e3)):
        trial = record(study, POINT)
        SPACE.suggest(trial)
        tell(study, trial, outcome(ne, costs={"parameter_bytes": size}), "parameter_bytes")
    assert [setting.trial_number for setting in ranked(study, SPACE, "parameter_bytes")] == [1, 0, 2]


def test_a_trial_of_a_living_process_is_left_alone_in_a_shared_storage(tmp_path: Path) -> None:
    address = storage_address(tmp_path, str(tmp_path / "shared.db"))
    mine = record(open_study(address, SPACE, is_shared=True), POINT)
    assert open_study(address, SPACE, is_shared=True).trials[0].state.name == "RUNNING"
    mine.set_user_attr(
        OWNER, [os.uname().nodename, os.getpid(), "another-boot/1"]
    )  # a process of the same id, long ago
    assert open_study(address, SPACE, is_shared=True).trials[0].state.name == "FAIL"


def test_a_study_of_another_space_cost_or_data_is_left_alone(tmp_path: Path) -> None:
    address = storage_address(tmp_path, str(tmp_path / "shared.journal"))
    other = SPACE.model_copy(update={"top_widths": (32,)})
    opened = [
        open_study(address, SPACE, is_shared=True),
        open_study(address, other, is_shared=True),
        open_study(address, SPACE, cost="step_seconds", is_shared=True),
        open_study(address, SPACE, belongs_to="other data", is_shared=True),
    ]
    record(opened[0], POINT)
    assert len({study.study_name for study in opened}) == 4
    assert [len(study.trials) for study in opened] == [1, 0, 0, 0]
    assert len(open_study(address, SPACE, is_shared=True).trials) == 1


def test_a_locked_storage_is_said_in_one_sentence(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "LOCK_SECONDS", 0.1)
    open_study(address, SPACE)
    holder = sqlite3.connect(address.removeprefix("sqlite:///"))
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TrackingError, match=r"\(database is locked\): another process holds it, so wait") as caught:
        open_study(address, SPACE)
    assert str(caught.value).count(". ") == 0
    holder.rollback()
    open_study(address, SPACE)


@pytest.mark.parametrize(("name", "text"), [("a.db", "no database" * 100), ("a.journal", "{no json\n{}\n")])
def test_a_damaged_storage_is_said_in_one_sentence(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TrackingError, match=f"{name} of the search (failed|cannot be opened) .*--search-storage.$"):
        open_study(storage_address(tmp_path, str(path)), SPACE, is_shared=True)


@pytest.mark.parametrize("damage", [garbage, cut])
def test_a_damaged_study_of_a_run_is_begun_anew(damage: Damage, address: str, tmp_path: Path) -> None:
    path = Path(address.removeprefix("sqlite:///"))
    with contextlib.closing(sqlite3.connect(path)) as tables:
        tables.execute(
            "CREATE TABLE trials AS WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) "
            "SELECT i, hex(randomblob(99)) FROM n LIMIT 500"
        )
        tables.commit()
    damage(path)
    assert open_study(address, SPACE).trials == []
    assert len(list(tmp_path.rglob("quarantine/**/study.db.*"))) == 1


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match=r"cannot be opened .* check that it can be reached and written"):
        open_study(storage_address(tmp_path, str(tmp_path / "file" / "a.db")), SPACE)


def test_a_storage_without_its_driver_is_said(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="oracle://") as caught:
        open_study(storage_address(tmp_path, "oracle://me:secret@nowhere/db"), SPACE)
    assert "secret@" not in str(caught.value)


@pytest.mark.usefixtures("limited_file_size")
def test_a_full_disk_is_said(address: str) -> None:
    def fill() -> None:
        study = open_study(address, SPACE)
        while True:
            record(study, POINT).set_user_attr("note", "x" * 2_000)

    with pytest.raises(TrackingError, match=r"study\.db"), storage_errors(address):
        fill()


def test_an_empty_space_is_refused_by_the_name_of_its_factor() -> None:
    empty = SPACE.model_copy(update={"embedding_dims": ()})
    with pytest.raises(RequestError, match="embedding_dim"):
        check_not_empty(empty)
    check_not_empty(SPACE)


def test_a_study_of_an_earlier_version_can_be_read() -> None:
    """Trials used to keep their quality as reported values only."""
    study = optuna.create_study(direction="minimize")
    trial = study.ask()
    SPACE.suggest(trial)
    trial.report(0.9, 1)
    trial.report(0.8, 2)
    study.tell(trial, 0.8)
    assert outcome_of(study.trials[0]).validation_ne == 0.8
    [setting] = ranked(study, SPACE, None)
    assert setting.validation_ne == 0.8
    assert setting.is_feasible


def test_the_figure_that_selects_is_what_the_study_lowers(address: str) -> None:
    study = open_study(address, SPACE, select_by="auc")
    for ne, lost in ((0.3, 0.04), (0.4, 0.02)):
        trial = record(study, POINT)
        SPACE.suggest(trial)
        tell(study, trial, outcome(ne, selected=lost), None)
    assert [one.value for one in study.trials] == [0.04, 0.02]
    assert [outcome_of(one) for one in study.trials] == [outcome(0.3, selected=0.04), outcome(0.4, selected=0.02)]
    assert [one.validation_ne for one in ranked(study, SPACE, None)] == [0.4, 0.3]
    assert open_study(address, SPACE).trials == []  # that of another figure is another study
