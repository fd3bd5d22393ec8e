"""A registration against a store that errs, is away or hears twice, and a killed one: one version comes of it."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.data.dataset import Dataset
from shunter.errors import TrackingError
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.tracking import patience, registry, reports
from shunter.tracking.client import TrackingClient
from shunter.tracking.registry import models, versions
from shunter.tracking.registry.client import RegistryClient
from shunter.tracking.registry.models import RegisteredModel, register_model
from shunter.tracking.runs import Run, start_run_tree
from shunter.tracking.store import experiment_id, open_store, tracking_uri
from tests.engine.synthetic import write_dataset

METRICS = {"quality.test.auc": 0.7, "quality.test.ne": 0.9}
SPEC = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))

Call = Callable[[], Any]
Fault = Callable[[Call], Any]


class Spoilt:
    """MLflow's own client, each of whose calls goes through a fault."""

    def __init__(self, client: MlflowClient, fault: Fault) -> None:
        self.client, self.fault, self.calls = client, fault, 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.client, name)
        if not callable(value):
            return value

        def attempt(*args: Any, **options: Any) -> Any:
            self.calls += 1
            return self.fault(lambda: value(*args, **options))

        return attempt


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    dataset = write_dataset(tmp_path / "data", rows=60)
    (dataset.directory / "encoder").mkdir(exist_ok=True)
    (dataset.directory / "encoder" / "encoder.json").write_text("{}")
    save_model(build_model(SPEC, dataset.features), tmp_path / "model")
    return dataset


@pytest.fixture
def parent(tracking_root: Path, dataset: Dataset) -> str:
    return start_run_tree(TrainRequest(), dataset)


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fault], Spoilt]:
    """Lets what registers talk to a store with a fault, without any waiting."""
    monkeypatch.setattr(patience.time, "sleep", lambda _: None)

    def spoil(fault: Fault) -> Spoilt:
        spoilt = Spoilt(open_store().mlflow, fault)

        def open_run(run_id: str) -> Run:
            client = TrackingClient(tracking_uri(), experiment_id)
            client.mlflow = spoilt  # type: ignore[assignment]
            return Run(run_id, client)

        monkeypatch.setattr(models, "open_run", open_run)
        return spoilt

    return spoil


def register(parent: str, dataset: Dataset, tmp_path: Path, name: str = "shunter") -> RegisteredModel:
    return register_model(parent, dataset, tmp_path / "model", name, metrics=METRICS)


def check_registered_once(run_id: str, name: str = "shunter") -> None:
    """One version, one model that is ready and whole, each figure once, and the alias on it."""
    client = MlflowClient(tracking_uri())
    (version,) = client.search_model_versions(f"run_id = '{run_id}'")
    assert client.get_model_version_by_alias(name, "champion").version == version.version
    experiment = client.get_run(run_id).info.experiment_id
    (model,) = client.search_logged_models([experiment], f"source_run_id = '{run_id}'")
    assert (model.status, model.artifact_location) == ("READY", version.source)
    assert {metric.key: metric.value for metric in model.metrics or []} == METRICS
    for metric in METRICS:
        assert len(client.get_metric_history(run_id, metric)) == 1
    folder = Path(client.get_model_version_download_uri(name, version.version))
    assert (folder / "data" / "recommender" / "model" / "model.safetensors").stat().st_size > 0


def errs(random: Random) -> Fault:
    def fault(call: Call) -> Any:
        if random.random() < 0.3:
            raise MlflowException("503")
        return call()

    return fault


def loses_answers(random: Random) -> Fault:
    def fault(call: Call) -> Any:
        answer = call()
        if random.random() < 0.3:
            raise MlflowException("no answer")
        return answer

    return fault


def hears_twice(random: Random) -> Fault:
    def fault(call: Call) -> Any:
        call()
        return call()  # which may fail because the first did not

    return fault


def kills_after(number: int) -> Fault:
    left = [number]

    def fault(call: Call) -> Any:
        answer = call()
        left[0] -= 1
        if not left[0]:  # the store has done it, and nobody is there any more to hear of it
            raise KeyboardInterrupt
        return answer

    return fault


@pytest.mark.parametrize("make", [errs, loses_answers, hears_twice])
def test_faults_of_the_store_need_no_second_command(
    make: Callable[[Random], Fault], parent: str, dataset: Dataset, tmp_path: Path, spoil: Callable[[Fault], Spoilt]
) -> None:
    spoil(make(Random(3)))
    assert register(parent, dataset, tmp_path).version == 1
    check_registered_once(parent)


def test_a_kill_at_any_call_and_the_same_command_again_register_once(
    dataset: Dataset, tmp_path: Path, tracking_root: Path, spoil: Callable[[Fault], Spoilt]
) -> None:
    run = start_run_tree(TrainRequest(), dataset)
    calls = spoil(lambda call: call())
    register(run, dataset, tmp_path, "counted")
    last = calls.calls
    assert last > 10
    for number in range(1, last + 1, 2):
        run, name = start_run_tree(TrainRequest(), dataset), f"killed-{number}"

        spoil(kills_after(number))
        with pytest.raises(KeyboardInterrupt):
            register(run, dataset, tmp_path, name)
        spoil(lambda call: call())
        assert register(run, dataset, tmp_path, name).version == 1
        check_registered_once(run, name)


def test_a_store_that_comes_back_gets_the_run_first(
    tracking_root: Path,
    dataset: Dataset,
    tmp_path: Path,
    spoil: Callable[[Fault], Spoilt],
    capsys: pytest.CaptureFixture[str],
) -> None:
    open_store()
    client = TrackingClient(tracking_uri(), experiment_id)

    def away(call: Call) -> Any:
        if spoilt.calls < 12:
            raise MlflowException("nobody listens")
        return call()

    spoilt = spoil(away)
    client.mlflow = spoilt  # type: ignore[assignment]
    local = client.create_run("train", {})
    assert local.startswith("local-")
    client.log_params(local, {"model": "dlrm"})
    assert register(local, dataset, tmp_path).version == 1
    check_registered_once(client.real_id(local))
    assert capsys.readouterr().err.count("does not accept the model yet") == 1


def test_a_file_that_did_not_arrive_is_sent_again(
    parent: str, dataset: Dataset, tmp_path: Path, spoil: Callable[[Fault], Spoilt], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt = spoil(lambda call: call())
    upload, swallowed = spoilt.client.log_model_artifact, []

    def swallows(model_id: str, file: str, folder: str | None) -> None:
        if file.endswith("model.safetensors") and not swallowed:
            swallowed.append(file)  # said to be fine
        else:
            upload(model_id, file, folder)

    monkeypatch.setattr(spoilt.client, "log_model_artifact", swallows)
    register(parent, dataset, tmp_path)
    assert swallowed
    check_registered_once(parent)


def test_patience_has_an_end(
    parent: str, dataset: Dataset, tmp_path: Path, spoil: Callable[[Fault], Spoilt], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FILE_PATIENCE_SECONDS", 0.0)

    def away(call: Call) -> Any:
        raise MlflowException("nobody listens")

    spoil(away)
    with pytest.raises(TrackingError, match="check that it can be reached"):
        register(parent, dataset, tmp_path)


def test_what_does_not_pass_by_itself_is_said_at_once(
    parent: str, dataset: Dataset, tmp_path: Path, spoil: Callable[[Fault], Spoilt]
) -> None:
    def refuses(call: Call) -> Any:
        raise MlflowException("not permitted", error_code=7)  # PERMISSION_DENIED

    spoilt = spoil(refuses)
    with pytest.raises(TrackingError, match="not permitted"):
        register(parent, dataset, tmp_path)
    assert spoilt.calls == 1


def test_a_version_made_by_hand_is_no_second_one(parent: str, dataset: Dataset, tmp_path: Path) -> None:
    first = register(parent, dataset, tmp_path)
    client = MlflowClient(tracking_uri())
    version = client.get_model_version("shunter", str(first.version))
    client.create_model_version("shunter", str(version.source), parent, model_id=version.model_id)
    assert register(parent, dataset, tmp_path) == first
    assert len(client.search_model_versions(f"run_id = '{parent}'")) == 2


def test_what_a_version_is_described_by_waits_for_the_store_too(
    parent: str, dataset: Dataset, tmp_path: Path, spoil: Callable[[Fault], Spoilt], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = register(parent, dataset, tmp_path)
    spoilt = spoil(errs(Random(1)))
    client = TrackingClient(tracking_uri(), experiment_id)
    client.mlflow = spoilt  # type: ignore[assignment]
    monkeypatch.setattr(reports, "open_store", lambda: client)
    monkeypatch.setattr(models, "open_registry", lambda: RegistryClient(spoilt))  # type: ignore[arg-type]
    monkeypatch.setattr(versions, "open_registry", lambda: RegistryClient(spoilt))  # type: ignore[arg-type]
    for number in range(8):
        assert f"/runs/{parent}/" in reports.artifact_link(parent, "page.html")
        models.describe_model(version, f"text {number}")
        versions.tag_version(versions.Version("shunter", 1, parent, {}), {"turn": str(number)}, "a note")
    found = MlflowClient(tracking_uri()).get_model_version("shunter", "1")
    assert (found.description, found.tags["turn"]) == ("a note", "7")
    assert spoilt.calls > 8 * 4


def test_the_public_names_are_of_the_package() -> None:
    for name in registry.__all__:
        assert getattr(registry, name) is getattr(models, name)
    with pytest.raises(AttributeError):
        registry.nothing  # noqa: B018
