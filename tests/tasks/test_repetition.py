"""What a run keeps for its repetition, and which runs cannot be repeated."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors import compilation, training_passes
from shunter.errors import RequestError
from shunter.extensions.distributed.training import plan
from shunter.flows.command.flow_commands import check_alone
from shunter.requests import Limits, TrainRequest
from shunter.tasks.repetition import NAME, NotRepeatableError, Repetition, options_in_time, weights_digest
from shunter.tasks.run_state import RunState
from shunter.tasks.train.member import remove_but_choices
from shunter.tracking.reports import log_config, log_request
from shunter.tracking.runs import start_run
from tests.engine.synthetic import write_dataset
from tests.tracking.test_reports import decision

LATEST = {"register_as": None, "promote": TrainRequest().promote}


def track(request: TrainRequest, **changed: object) -> str:
    """A run that keeps its request and choices; these as they are without `changed`."""
    run_id = start_run("train", "train")
    log_request(run_id, request, "train")
    kept = {"decision": decision().model_dump(mode="json"), "data_fingerprint": "data", "host": "host"}
    log_config(run_id, NAME, {**kept, "weights_sha256": "00", "ended_in_time": False, **changed})
    return run_id


def test_a_run_is_read_back_with_its_choices_and_fixed_threads(tracking_root: Path) -> None:
    run_id = track(TrainRequest(trials=2, seed=7), files={"tune/past.choice.json": "{}"})
    found = Repetition.of(run_id, register_as="other", promote=TrainRequest().promote)
    assert (found.request.seed, found.request.search.trials, found.request.register_as) == (7, 2, "other")
    assert found.request.training.fixed_threads
    assert found.choices.files == {"tune/past.choice.json": "{}"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"search_minutes": 1.0}, ["--search-minutes"]),
        ({"parallel_trials": 2, "search_cost": "time"}, ["--search-cost time"]),
        ({"ensemble_of": "champions"}, ["--ensemble-of champions"]),
        ({"search_cost": "bytes", "parallel_trials": 2}, []),
    ],
)
def test_options_by_which_a_run_depends_on_a_clock_or_on_other_runs(
    options: dict[str, object], named: list[str], tracking_root: Path
) -> None:
    request = TrainRequest(**options)
    assert options_in_time(request) == named
    if named:
        with pytest.raises(NotRepeatableError) as caught:
            Repetition.of(track(request), **LATEST)
        assert caught.value.options == tuple(named)


@pytest.mark.parametrize("changed", [{"ended_in_time": True}, {"decision": {}}])
def test_a_run_that_a_clock_ended_or_that_keeps_no_choices_is_refused(
    changed: dict[str, object], tracking_root: Path
) -> None:
    with pytest.raises(NotRepeatableError) as caught:
        Repetition.of(track(TrainRequest(), **changed), **LATEST)
    assert caught.value.options == ()


def begin(repetition: Repetition, dataset: Dataset) -> dict[str, str]:
    """Choices in the folder of the run that repeats another, each file by its name."""
    with RunState(repetition.request, dataset, "host", purpose=repetition.purpose) as state:
        repetition.begin(state, dataset)
        return {path.name: path.read_text() for path in state.directory.rglob("*.json") if "choice" in path.name}


def test_a_beginning_that_was_killed_begins_again_and_one_that_was_complete_is_kept(
    tracking_root: Path, tmp_path: Path
) -> None:
    dataset = write_dataset(tmp_path / "data", rows=100)
    files = {"tune/past.choice.json": "{}", "machine.choice.json": "{}"}
    run_id = track(TrainRequest(), files=files, data_fingerprint=dataset.fingerprint)
    repetition = Repetition.of(run_id, **LATEST)
    with RunState(repetition.request, dataset, "host", purpose=repetition.purpose) as state:
        (state.directory / "machine.choice.json").write_text("cut")
    assert begin(repetition, dataset) == {"past.choice.json": "{}", "machine.choice.json": "{}"}
    (state.directory / "machine.choice.json").write_text("[]")
    assert begin(repetition, dataset)["machine.choice.json"] == "[]"


@pytest.mark.parametrize("name", ["../machine.choice.json", "identity.json", "../../plans/x.yaml"])
def test_choices_write_no_other_file(name: str, tracking_root: Path, tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=100)
    repetition = Repetition.of(
        track(TrainRequest(), files={name: "{}"}, data_fingerprint=dataset.fingerprint), **LATEST
    )
    with pytest.raises(NotRepeatableError):
        begin(repetition, dataset)


def test_options_beside_a_repeated_run_are_refused() -> None:
    check_alone(TrainRequest(register_as="other"), "latest")
    for request, is_dry in ((TrainRequest(limits=Limits(max_hours=1)), False), (TrainRequest(), True)):
        with pytest.raises(RequestError):
            check_alone(request, "latest", is_dry=is_dry)


def test_the_digest_is_of_names_and_content_of_all_weights(tmp_path: Path) -> None:
    digests = []
    for name, value in (("a", 1.0), ("a", 2.0), ("b", 1.0), ("a", 1.0)):
        folder = tmp_path / str(len(digests))
        folder.mkdir()
        save_file({"weight": np.full(3, value, np.float32)}, folder / f"{name}.safetensors")
        (folder / "trained.json").write_text(str(len(digests)))
        digests.append(weights_digest(folder))
    assert len(set(digests)) == 3
    assert digests[0] == digests[3]


def test_of_a_finished_training_only_its_choices_stay(tmp_path: Path) -> None:
    kept = {compilation.FILE, training_passes.FILE, plan.MACHINE}
    for name in (*kept, "checkpoint-000001/state.json", "energy.json"):
        path = tmp_path / "checkpoint" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    remove_but_choices(tmp_path / "checkpoint")
    assert {path.name for path in (tmp_path / "checkpoint").rglob("*")} == kept
    remove_but_choices(tmp_path / "none")
