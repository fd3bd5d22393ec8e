"""Earlier searches in a real store: found again, the nearest first, whatever else lies there."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.extensions.meta_learning.features import meta_features
from shunter.extensions.meta_learning.past import (
    PREFIX,
    TAUGHT,
    begin_from_past,
    evaluated_runs,
    log_meta_features,
    nearest_studies,
)
from shunter.extensions.meta_learning.portfolio import first_points
from shunter.hardware.types import Placement
from shunter.requests import TrainRequest
from shunter.search.job import SearchJob
from shunter.search.protocol import Outcome, Parameters
from shunter.search.search import search
from shunter.search.space.settings import SearchSpace
from shunter.search.study.trial import LONGEST_TEXT, OUTCOME, PARAMETERS, trial_tags
from shunter.settings import Settings
from shunter.tracking.history import read_children
from shunter.tracking.runs import child_run, finish, open_run, start_run_tree
from shunter.tracking.tree import read_tree
from tests.engine.synthetic import write_dataset

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
SMALL = SearchSpace(embedding_dims=(4, 8), top_widths=(8, 16), most_top_layers=2, bottom_widths=())
FIGURES = {"rows": 1_000.0, "base_rate": 0.3}


@pytest.fixture
def dataset(tmp_path: Path, tracking_root: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=600, dense=0, single=2, bags=0)


def keep_study(
    dataset: Dataset, trials: list[tuple[Parameters, Outcome]], features: dict[str, float] | None = None
) -> str:
    """A finished run of a search, with what it tried."""
    run_id = start_run_tree(TrainRequest(), dataset)
    open_run(run_id).log_metrics({f"{PREFIX}{name}": value for name, value in (features or FIGURES).items()})
    for number, (parameters, outcome) in enumerate(trials):
        with child_run(run_id, f"trial-{number}", "trial") as run:
            run.set_tags(trial_tags(parameters, outcome))
    finish(run_id)
    return run_id


def tried(*losses: float) -> list[tuple[Parameters, Outcome]]:
    return [
        ({**SMALL.default(), "dropout": 0.1 * number}, Outcome(state="complete", validation_ne=loss))
        for number, loss in enumerate(losses)
    ]


def test_a_search_is_read_back_as_it_was_told(dataset: Dataset) -> None:
    trials = tried(0.9, 0.8, 0.85)
    trials[1] = trials[1][0], Outcome(state="pruned", validation_ne=0.8, costs={"step_seconds": 0.01}, seconds=3.0)
    run_id = keep_study(dataset, trials)
    [study] = nearest_studies(FIGURES, evaluated_runs(None))
    assert (study.name, study.run_id, study.distance) == ("synthetic", run_id, 0)
    assert sorted(study.trials, key=lambda trial: trial[0]["dropout"]) == trials
    assert nearest_studies(FIGURES, evaluated_runs(run_id)) == ()


def test_the_nearest_come_first_and_no_name_crowds_out_the_others(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.extensions.meta_learning.past.MOST_OF_ONE_NAME", 2)
    far = keep_study(dataset, tried(0.9, 0.8, 0.7), {"rows": 1e6, "base_rate": 0.3})
    near = [keep_study(dataset, tried(0.9, 0.8, 0.7), {"rows": rows, "base_rate": 0.3}) for rows in (2e3, 3e3)]
    found = nearest_studies(FIGURES, evaluated_runs(None))
    assert [study.run_id for study in found] == near
    assert found[0].distance < found[1].distance
    assert [study.run_id for study in nearest_studies(FIGURES, evaluated_runs(None), 1)] == near[:1]
    other = keep_study(replace(dataset, name="other"), tried(0.9, 0.8, 0.7), {"rows": 1e7, "base_rate": 0.3})
    assert [study.run_id for study in nearest_studies(FIGURES, evaluated_runs(None))] == [*near, other]
    assert far not in {study.run_id for study in nearest_studies(FIGURES, evaluated_runs(None))}


def test_few_studies_of_many_names_rather_than_many_of_the_nearest(dataset: Dataset) -> None:
    for far, name in enumerate(["a", "a", "b", "c"]):
        features = {"rows": 10.0 ** (3 + far), "base_rate": 0.3}
        keep_study(replace(dataset, name=name), tried(0.9, 0.8, 0.7), features)
    assert [study.name for study in nearest_studies(FIGURES, evaluated_runs(None), 3)] == ["a", "b", "c"]
    assert [study.name for study in nearest_studies(FIGURES, evaluated_runs(None), 4)] == ["a", "a", "b", "c"]


def test_what_cannot_be_read_is_passed_over(dataset: Dataset) -> None:
    run_id = keep_study(dataset, tried(0.9, 0.8, 0.7))
    garbage: list[dict[str, str]] = [
        {},
        {PARAMETERS: "{", OUTCOME: "{}"},
        {PARAMETERS: "[1]", OUTCOME: trial_tags({}, Outcome(state="failed"))[OUTCOME]},
        {PARAMETERS: '{"dropout": 0.1}', OUTCOME: '{"state": "divine"}'},
        trial_tags({"dropout": 0.1}, Outcome(state="complete", validation_ne=-1.0)),
        trial_tags({"dropout": 0.1}, Outcome(state="failed")),  # of a run that did not fail: it was killed
    ]
    for tags in garbage:
        with child_run(run_id, "trial", "trial") as run:
            run.set_tags(tags)
    keep_study(dataset, tried(0.9, 0.8, 0.7), {"else": 1.0})  # of data of which nothing is known
    start_run_tree(TrainRequest(), dataset)  # a run that never came to search
    log_meta_features(start_run_tree(TrainRequest(), dataset), dataset)  # and one killed before its first trial
    [study] = nearest_studies(FIGURES, evaluated_runs(None))
    assert len(study.trials) == 3


def test_a_failed_trial_teaches_too(dataset: Dataset) -> None:
    run_id = keep_study(dataset, tried(0.9, 0.8, 0.7))
    wild = {**SMALL.default(), "dense_learning_rate": 1e-2}
    with child_run(run_id, "trial-3", "trial") as run:
        run.set_tags(trial_tags(wild, Outcome(state="failed")))
    finish(run.run_id, "FAILED", "the loss went astray")
    [study] = nearest_studies(FIGURES, evaluated_runs(None))
    assert (wild, Outcome(state="failed")) in study.trials
    assert len(study.with_result) == 3


def test_a_point_too_large_for_a_tag_is_not_kept() -> None:
    large: dict[str, Any] = {f"dim_{number}": 16 for number in range(LONGEST_TEXT // 10)}
    assert trial_tags(large, Outcome(state="failed")) == {}


def test_an_interrupted_search_keeps_its_past(dataset: Dataset, tmp_path: Path) -> None:
    keep_study(dataset, tried(0.9, 0.8, 0.7), meta_features(dataset))
    own = start_run_tree(TrainRequest(), dataset)
    before = begin_from_past(dataset, tmp_path / "run", own)
    keep_study(dataset, tried(0.5, 0.4, 0.3), meta_features(dataset))
    assert begin_from_past(dataset, tmp_path / "run", own) == before
    assert len(before) == 1
    (tmp_path / "run" / "past.choice.json").write_text("{")
    assert len(begin_from_past(dataset, tmp_path / "run", own)) == 2


def test_a_search_too_short_to_teach_judges_its_data_only_where_there_is_a_past(
    dataset: Dataset, tmp_path: Path
) -> None:
    def begun(name: str, **options: Any) -> tuple[int, bool]:
        own = start_run_tree(TrainRequest(), dataset)
        past = begin_from_past(dataset, tmp_path / name, own, **options)
        return len(past), any(name.startswith(PREFIX) for name in read_tree(own).parent.metrics)

    assert begun("short", trials=1) == (0, False)
    assert begun("longer", trials=3) == (0, True)
    keep_study(dataset, tried(0.9, 0.8, 0.7), meta_features(dataset))
    assert begun("short again", trials=1) == (1, True)
    assert begun("short and cold", trials=1, is_cold=True) == (0, False)


def test_a_second_search_starts_where_the_first_ended(dataset: Dataset, tmp_path: Path) -> None:
    def searched(name: str, **options: Any) -> tuple[str, list[Parameters]]:
        request = TrainRequest(trials=3, max_epochs=1, **options)
        run_id = start_run_tree(request, dataset)
        search(
            SearchJob(
                dataset=dataset,
                request=request,
                placement=PLACEMENT,
                directory=tmp_path / name,
                parent_run_id=run_id,
                space=SMALL,
            )
        )
        tried = reversed(read_children(run_id, "trial"))
        return run_id, [json.loads(child.tags[PARAMETERS]) for child in tried]

    _, first = searched("first")
    [past] = nearest_studies(meta_features(dataset), evaluated_runs(None))
    run_id, second = searched("second")
    _, cold = searched("cold", cold_start=True)
    assert first[0] == cold[0] == SMALL.default()
    assert second == first_points(SMALL, [past])[:3]
    taught = open_run(run_id).client.mlflow.get_run(run_id).data.tags[TAUGHT]
    assert "synthetic (3 trials, distance 0.00)" in taught


def test_no_number_in_the_figures_is_infinite(dataset: Dataset) -> None:
    run_id = start_run_tree(TrainRequest(), dataset)
    log_meta_features(run_id, dataset)
    kept = read_tree(run_id).parent.metrics
    figures = {name: value for name, value in kept.items() if name.startswith(PREFIX)}
    assert len(figures) > 10
    assert all(map(math.isfinite, figures.values()))


def test_features_of_the_same_data_are_computed_once(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def compute(dataset: Dataset) -> dict[str, float]:
        computed.append(dataset.fingerprint)
        return {"rows": 100.0, "base_rate": 0.25}

    monkeypatch.setattr("shunter.extensions.meta_learning.past.meta_features", compute)
    first, again = (log_meta_features(start_run_tree(TrainRequest(), dataset), dataset) for _ in range(2))
    assert first == again
    (file,) = Settings().data_features_directory.iterdir()
    file.write_bytes(file.read_bytes().replace(b"100", b"101"))
    assert log_meta_features(start_run_tree(TrainRequest(), dataset), dataset)["rows"] == 100
    assert computed == [dataset.fingerprint] * 2
