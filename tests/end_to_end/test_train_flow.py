"""The whole flow on generated clicks: what a user gets, what a second run reuses, what an interrupted run keeps."""

import io
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from shunter.errors import InfeasibleError
from shunter.planner.history import read_history
from shunter.requests import Limits, TrainRequest
from shunter.settings import Settings
from shunter.tasks.repetition import Repeat
from shunter.tracking.convention import TRIAL_OF_MEMBER
from shunter.tracking.history import read_children
from tests.listeners import listening_sockets, public

pytestmark = pytest.mark.slow
QUICK = TrainRequest(data="synthetic:6000", trials=2, max_epochs=2, ensemble_size=2)
PATIENCE_SECONDS = 900  # with a command that hangs; nothing is said of how long one takes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path], prefect_server: str):
    """One training, looked at by several tests; its home lives as long as they do."""
    home = furnish(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        from shunter.flows.train import train

        summary = train(QUICK)
    return home, summary


@pytest.fixture
def in_that_home(trained, monkeypatch: pytest.MonkeyPatch):
    home, summary = trained
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    return summary


def test_summary_holds_measured_figures_of_every_step(in_that_home) -> None:
    summary = in_that_home
    assert set(summary.step_seconds) == {
        *("ingest", "profile", "track", "select", "baselines", "tune", "train", "ensemble", "card", "register"),
        *("report", "other"),
    }
    assert min(summary.step_seconds.values()) >= 0
    assert 0.5 < summary.result.test.auc < 1
    assert summary.rows["test"] == summary.result.test.rows
    assert summary.energy.method in {"measured", "estimated"}
    assert summary.energy.joules is not None
    assert summary.energy.joules > 0


def test_any_family_within_minutes_and_where_these_went(in_that_home) -> None:
    from mlflow import MlflowClient

    from shunter.engine.ensemble.result import EnsembleResult
    from shunter.flows.train import train

    summary = train(  # ended by its trials, for how many the minutes suffice for, the machine would say
        TrainRequest(data="synthetic:6000", model="auto", search_minutes=4, trials=2, max_epochs=1, ensemble_size=2)
    )
    assert summary.tuned is not None
    assert len({setting.spec.family for setting in summary.tuned.settings}) > 1
    assert isinstance(summary.result, EnsembleResult)
    assert summary.result.members
    assert summary.minutes is not None
    assert "of 4 minutes: baselines" in summary.minutes
    assert MlflowClient(summary.tracking_uri).get_run(summary.run_id).data.tags["search.minutes"] == summary.minutes
    assert in_that_home.minutes is None


def test_the_summary_is_a_table_of_few_lines(in_that_home) -> None:
    from shunter.flows.command.rendering import energy
    from shunter.flows.command.summary import detail_rows, figures_table, outcome_rows, print_summary
    from shunter.masked_console import Console

    table = figures_table(in_that_home)
    figures = {row[0]: row[1:] for row in table.rows}
    assert figures["Test NE"][0] == f"{in_that_home.result.test.ne:.3f}"
    low, high = figures["Test AUC"][1].split(" to ")
    assert float(low) <= in_that_home.result.test.auc <= float(high)
    assert figures["Test NE"][2].endswith((" baseline lr", " baseline fm"))
    assert figures["Energy"][0].startswith("~") == (in_that_home.energy.method != "measured")
    work = in_that_home.training_joules
    assert work is not None
    assert 0 < work < in_that_home.energy.joules
    assert figures["Search and training"][0].endswith(energy(work, in_that_home.energy.method))
    kwh = in_that_home.decision.kwh
    assert energy(3.6e6 * kwh, "predicted") in figures["Search and training"][2]
    assert figures["Placement"][0] == in_that_home.decision.placement.label
    assert dict(outcome_rows(in_that_home))["Report"] == f"shunter report {in_that_home.run_id[:8]}"
    assert dict(detail_rows(in_that_home))["Placement"] == in_that_home.decision.reason
    lines = {}
    for verbose in (False, True):
        console = Console(width=120, record=True, file=io.StringIO())
        print_summary(console, in_that_home, verbose=verbose)
        lines[verbose] = console.export_text().splitlines()
    assert len(lines[False]) <= 16
    assert lines[True][: len(lines[False])] == lines[False]


def test_summary_says_what_is_promised_in_words_and_as_plain_values(in_that_home) -> None:
    from shunter.engine.ensemble.guarantee import bounds
    from shunter.flows.command.summary import outcome_rows
    from shunter.flows.command.summary_json import summary_as_json
    from shunter.reporting.card.promise import Promise

    found = bounds(np.arange(40) % 2, np.arange(40.0), confidence=0.9)
    promise = Promise(min_auc=0.5, max_ne=None, confidence=0.9, unit="rows", bounds=found)
    summary = in_that_home.model_copy(update={"promise": promise})
    assert dict(outcome_rows(summary))["Guaranteed"] == promise.sentence
    told = summary_as_json(summary)["promise"]
    assert (told["min_auc"], told["bounds"]["auc_low"]) == (0.5, found.auc_low)
    assert summary_as_json(in_that_home)["promise"] is None


def test_every_step_is_in_one_tree_of_runs(in_that_home) -> None:
    from mlflow import MlflowClient

    from shunter.tracking.convention import read_account
    from shunter.tracking.tree import read_tree

    client = MlflowClient(in_that_home.tracking_uri)
    parent = client.get_run(in_that_home.run_id)
    children = client.search_runs(
        [parent.info.experiment_id], f"tags.mlflow.parentRunId = '{in_that_home.run_id}'", max_results=50
    )
    assert parent.info.status == "FINISHED"
    own = {name: value for name, value in parent.data.metrics.items() if not name.startswith("system/")}
    assert len(own) <= 30  # with those of the machine at most 40
    assert all("/" in name for name in own)
    assert not own.keys() & parent.data.params.keys()
    assert own["quality/auc"] == pytest.approx(in_that_home.result.test.auc)
    assert own["energy/kilojoules"] == pytest.approx(in_that_home.energy.joules / 1e3)
    assert own["time/total_seconds"] == pytest.approx(in_that_home.total_seconds)
    assert parent.data.tags["energy.source"] == in_that_home.energy.method
    assert parent.data.params["placement.label"] == in_that_home.decision.placement.label
    details = read_tree(in_that_home.run_id).parent.metrics
    assert details["time.wall_seconds"] == pytest.approx(sum(in_that_home.step_seconds.values()))
    assert read_account(details) == pytest.approx(in_that_home.step_seconds)
    kinds = [child.data.tags["run.kind"] for child in children]
    assert kinds.count("trial") == 2
    assert kinds.count("baseline") == 4  # each of two with two learning rates
    assert kinds.count("member") == 2
    assert kinds.count("ensemble") == 1
    artifacts = {artifact.path for artifact in client.list_artifacts(in_that_home.run_id)}
    assert {"decision.json", "report.html", "config", "model_card"} <= artifacts
    described = client.get_model_version(in_that_home.registered.name, str(in_that_home.registered.version))
    assert "model_card.html" in (described.description or "")


def test_flow_run_and_its_decision_are_in_prefect(in_that_home) -> None:
    import asyncio

    from prefect import get_client

    async def read():
        async with get_client() as client:
            runs = await client.read_flow_runs()
            artifacts = await client.read_artifacts()
        return runs, {artifact.key for artifact in artifacts}

    runs, keys = asyncio.run(read())
    assert any(run.name == in_that_home.flow_run_name and run.state and run.state.is_completed() for run in runs)
    assert "decision" in keys


def test_registered_model_scores_raw_rows(in_that_home) -> None:
    from shunter.tracking.registry.models import load_champion

    rows = pd.DataFrame([{**{f"I{i}": 1.0 for i in range(1, 14)}, **{f"C{i}": "unseen" for i in range(1, 27)}}] * 3)
    scores = load_champion("synthetic").predict(rows)
    assert len(scores) == 3
    assert all(0 < float(score) < 1 for score in scores)


def test_a_repeated_run_has_the_same_weights_although_the_home_has_learned_since(in_that_home) -> None:
    from mlflow import MlflowClient

    from shunter.flows.train import train

    summary = train(TrainRequest(register_as="repeated"), repeat=in_that_home.run_id)
    assert summary.repeat == Repeat(run_id=in_that_home.run_id, is_equal=True, same_host=True)
    assert summary.registered.name == "repeated"
    assert summary.data_name == in_that_home.data_name
    assert summary.decision.placement == in_that_home.decision.placement
    tags = MlflowClient(summary.tracking_uri).get_run(summary.run_id).data.tags
    assert (tags["repeat.of"], tags["repeat.is_equal"]) == (in_that_home.run_id, "True")


def test_second_run_reuses_the_ingested_data(in_that_home) -> None:
    from shunter.ingestion.request import ingest_request

    assert ingest_request(QUICK)[1].reused


def test_finished_run_leaves_no_state_behind(in_that_home) -> None:
    assert [path for path in Settings().runs_directory.iterdir() if path.is_dir()] == []


def test_quality_that_past_runs_make_unlikely_is_refused_before_training(in_that_home) -> None:
    from shunter.flows.train import train

    with pytest.raises(InfeasibleError, match=r"0\.999"):
        train(QUICK.model_copy(update={"limits": Limits(min_auc=0.999)}))


def test_model_below_the_quality_limit_is_not_registered(in_that_home) -> None:
    from shunter.flows.train import train
    from shunter.tracking.listing import list_trainings

    limits = Limits(min_auc=0.999, min_auc_probability=1e-6)  # tried although past runs make it unlikely
    with pytest.raises(InfeasibleError, match="--min-auc"):
        train(QUICK.model_copy(update={"limits": limits, "register_as": "never", "baselines": "none"}))
    [newest] = list_trainings(1)
    assert newest["status"] == "FAILED"
    assert newest["registered"] is None
    history = read_history()
    missed = next(run for run in history.runs if run.run_id == newest["run_id"])
    assert (missed.outcome, missed.is_censored, missed.asked_auc) == ("missed", True, 0.999)
    assert missed.auc is not None
    assert missed.auc < 0.999
    assert missed.work_share is not None


def test_training_teaches_the_prediction_beside_what_it_took(in_that_home) -> None:
    history = read_history()
    run = next(run for run in history.runs if run.run_id == in_that_home.run_id)
    assert run.outcome == "reached"
    assert len(run.steps) > 0
    for figures in (run.predicted, run.measured):
        assert figures.seconds is not None
        assert figures.memory_bytes is not None
    children = [child for kind in ("member", "trial") for child in read_children(in_that_home.run_id, kind)]
    own = {child.run_id for child in children}
    members = [run for run in history.runs if run.kind == "member" and run.run_id in own]
    trials = [run for run in history.runs if run.kind == "trial" and run.run_id in own]
    taken = {child.run_id for child in read_children(in_that_home.run_id, "member") if TRIAL_OF_MEMBER in child.tags}
    assert taken
    assert taken.isdisjoint(member.run_id for member in members)  # what its trial took is not counted twice
    assert run.epochs == pytest.approx(sum(one.epochs or 0.0 for one in members + trials))
    followed = {child.run_id for child in children if "adaptation.reason" in child.tags}  # threads left to others
    for training in members + trials:
        assert len(training.steps) == 1 or (not training.steps and training.run_id in followed)
    for training in filter(lambda one: one.steps, members + trials):
        assert training.measured.step_seconds == pytest.approx(training.steps[0].measured_seconds, rel=1e-3)


def status_of(url: str) -> int:
    """What a stranger is answered."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_interrupted_command_says_so_and_the_next_one_resumes_where_the_home_is_now(
    shunter_home: Path, add_profiles: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C as a terminal sends it: to every process of the group, the temporary server's included.

    But for what is known of the machine the home is bare: the tables of MLflow and Prefect are made as for a user.
    """
    add_profiles(shunter_home)
    monkeypatch.setenv("PREFECT_HOME", str(shunter_home / "prefect"))  # not the database of the tests' own server
    shunter = Path(sys.executable).with_name("shunter")
    command = [shunter, "train", "--data", "synthetic:6000", "--trials", "2", "--max-epochs", "2"]
    command += ["--ensemble-size", "1", "--baselines", "none"]
    former = signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # what a shell starts with `&` ignores it, and so its children
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    signal.signal(signal.SIGINT, former)
    runs = shunter_home / "runs"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and not list(runs.glob("*/decision.json")):
        assert first.poll() is None, first.stderr.read() if first.stderr else ""
        time.sleep(0.02)
    sockets = listening_sockets(psutil.Process(first.pid))
    assert not public(address for address, _ in sockets)
    statuses = [status_of(f"http://{address}:{port}/api/admin/version") for address, port in sockets]
    assert statuses == [401], sockets
    os.killpg(first.pid, signal.SIGINT)
    _, errors = first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == 130, errors
    assert errors.strip().splitlines()[-1] == "Interrupted: run the same command again to resume where it stopped."
    moved = shunter_home.rename(shunter_home.with_name("moved home"))
    monkeypatch.setenv("SHUNTER_HOME", str(moved))
    monkeypatch.setenv("PREFECT_HOME", str(moved / "prefect"))
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert second.returncode == 0, second.stderr
    assert "Resumed" in second.stdout
    assert not shunter_home.exists()
