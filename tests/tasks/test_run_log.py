"""The log of a run tells each trial, the decision, and how good the model is beside others."""

import logging
from pathlib import Path

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.metrics import Metrics
from shunter.requests import TrainRequest
from shunter.search.protocol import Outcome
from shunter.search.study.loop import as_text
from shunter.tasks.run_log import log_sentence, outcome_sentences
from shunter.tracking.links import pages_address, run_link
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.registry.rival import Rival
from shunter.tracking.runs import start_run_tree
from tests.engine.synthetic import write_dataset

QUALITY = Metrics(auc=0.71, logloss=0.5, ne=0.88, calibration=1.0, rows=100, base_rate=0.3)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=100)


@pytest.fixture
def run_id(dataset: Dataset, tracking_root: Path) -> str:
    return start_run_tree(TrainRequest(), dataset)


def result(dataset: Dataset, run_id: str) -> EnsembleResult:
    return EnsembleResult(
        directory=dataset.directory,
        data_fingerprint=dataset.fingerprint,
        kept="single",
        members=(),
        best_single="member-0",
        judged_ensemble=None,
        judged_single=None,
        validation=QUALITY,
        test=QUALITY,
        reason="The best single model was kept",
        run_id=run_id,
    )


def test_the_outcome_is_told_beside_the_base_rate_and_the_champion(
    dataset: Dataset, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = Rival(3, {"AUC": 0.7, "NE": 0.9}, dataset.fingerprint)
    monkeypatch.setattr("shunter.tasks.run_log.rival_of", lambda name, version: rival)
    registered = RegisteredModel(name="shop", version=4, uri="models:/shop/4")
    assert outcome_sentences(result(dataset, run_id), registered, run_id) == [
        "The best single model was kept.",
        "On the test part: AUC 0.7100, NE 0.8800 (the base rate: 0.5 and 1).",
        "Registered as shop version 4, now its champion.",
        "The champion before it, version 3, has AUC 0.7000, NE 0.9000 on the test part of the same data.",
        f"In MLflow: {run_link(run_id)}",
    ]
    refused = registered.model_copy(update={"not_promoted": "Not promoted: it is noise."})
    *_, version, champion, _ = outcome_sentences(result(dataset, run_id), refused, run_id)
    assert version == "Registered as shop version 4, not its champion. Not promoted: it is noise."
    assert champion.startswith("The champion, version 3, has ")


def test_a_first_version_has_no_rival(dataset: Dataset, run_id: str) -> None:
    registered = RegisteredModel(name="shop", version=1, uri="models:/shop/1")
    assert not [line for line in outcome_sentences(result(dataset, run_id), registered, run_id) if "version 3" in line]


def test_links_open_the_pages_of_trainings(run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link = run_link(run_id)
    assert link.startswith("http://127.0.0.1:5000/#/experiments/")
    assert link.endswith(f"/runs/{run_id}?workflowType=machine_learning")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    assert pages_address() == "https://mlflow.example.org"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(state="complete", validation_ne=0.9, seconds=2.0), "Trial 4: NE 0.9000 on validation in 2.0 s."),
        (
            Outcome(
                state="pruned", validation_ne=0.9, seconds=2.0, violations={"max_memory_gib": 0.5, "max_hours": -1}
            ),
            "Trial 4: NE 0.9000 on validation in 2.0 s; stopped early, for others were better at the same point; "
            "breaks "
            "max_memory_gib.",
        ),
        (Outcome(state="failed", seconds=0.5), "Trial 4 failed after 0.5 s."),
    ],
)
def test_a_trial_in_words(outcome: Outcome, words: str) -> None:
    assert as_text(4, outcome, "ne") == words


def test_outside_of_a_run_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_sentence("Something.")
    assert caplog.text == ""
