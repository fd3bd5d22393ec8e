"""Which version is in use: promoted, rolled back step by step, put back by number, and never lost."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.storage import StoredRanker, save_ranker
from shunter.errors import CheckpointError, RequestError, SeveralModelsError, UnknownNameError
from shunter.ingestion.request import ingest_request
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.models.registry import build_model, model_spec
from shunter.registry import Registry
from shunter.requests import TrainRequest
from shunter.tracking.registry import versions
from shunter.tracking.registry.models import load_champion, register_model
from shunter.tracking.registry.versions import champion_of, download, only_model, roll_back
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri

SPEC = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))


@pytest.fixture(scope="module")
def request_and_data(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainRequest, Dataset]:
    folder = tmp_path_factory.mktemp("log")
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"click": random.integers(0, 2, 300), "user": random.integers(0, 20, 300)})
    frame.to_parquet(folder / "log.parquet")
    (folder / "schema.json").write_text(json.dumps({"label": "click", "categorical": ["user"]}))
    request = TrainRequest(data=str(folder / "log.parquet"), schema_file=str(folder / "schema.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        return request, ingest_request(request)[0]


@pytest.fixture
def register(tracking_root: Path, request_and_data: tuple[TrainRequest, Dataset], tmp_path: Path):
    request, dataset = request_and_data

    def register(name: str = "shunter", refused: str | None = None) -> int:
        run = start_run_tree(request, dataset)
        save_model(build_model(SPEC, dataset.features), tmp_path / "model")
        return register_model(run, dataset, tmp_path / "model", name, metrics={}, not_promoted=refused).version

    return register


def aliases() -> dict[str, int]:
    found = MlflowClient(tracking_uri()).get_registered_model("shunter").aliases
    return {name: int(version) for name, version in found.items()}


def test_registering_keeps_the_former_champion_at_hand(register) -> None:
    register()
    assert aliases() == {"champion": 1}
    register()
    assert aliases() == {"champion": 2, "previous": 1}


def test_rollbacks_go_back_step_by_step_until_the_first_champion(register) -> None:
    for _ in range(3):
        register()
    assert [version.version for version in roll_back("shunter") if version] == [3, 2]
    assert aliases() == {"champion": 2, "previous": 1}
    assert [version.version for version in roll_back("shunter") if version] == [2, 1]
    assert aliases() == {"champion": 1}
    with pytest.raises(RequestError, match=r".shunter. cannot be rolled back.*version 1"):
        roll_back("shunter")
    assert aliases() == {"champion": 1}


def test_version_by_number_is_put_back_and_the_next_rollback_undoes_it(register) -> None:
    for _ in range(3):
        register()
    roll_back("shunter", to=1)
    assert aliases() == {"champion": 1, "previous": 3}
    roll_back("shunter")
    assert aliases() == {"champion": 3, "previous": 2}


def test_promotion_after_a_rollback_steps_back_to_the_version_it_replaced(register) -> None:
    for _ in range(3):
        register()
    roll_back("shunter", to=1)
    assert register() == 4
    assert aliases() == {"champion": 4, "previous": 1}
    roll_back("shunter")
    assert aliases() == {"champion": 1}


def test_what_was_refused_is_promoted_by_its_number(register) -> None:
    register(refused="Not promoted: too few rows.")
    register(refused="Not promoted: too few rows.")
    with pytest.raises(RequestError, match="--to"):
        roll_back("shunter")
    former, champion = roll_back("shunter", to=1)
    assert (former, champion.version) == (None, 1)
    assert aliases() == {"champion": 1}
    former, champion = roll_back("shunter", to=2)
    assert former is not None
    assert (former.version, champion.version) == (1, 2)


def test_mistakes_are_said_and_change_nothing(register) -> None:
    with pytest.raises(RequestError, match="'shunter'"):
        roll_back("shunter")
    register()
    register()
    with pytest.raises(RequestError, match="'shunter'"):
        roll_back("shunter", to=7)
    with pytest.raises(RequestError, match="is already the champion"):
        roll_back("shunter", to=2)
    assert aliases() == {"champion": 2, "previous": 1}


def test_a_graph_model_is_put_back_as_well(
    tracking_root: Path, request_and_data: tuple[TrainRequest, Dataset], tmp_path: Path
) -> None:
    request, dataset = request_and_data
    spec, rows = graph_spec("lightgcn"), dataset.features.table_rows[0]
    ranker = VectorRanker.empty(rows, rows, width=64)
    for _ in range(2):
        stored = StoredRanker(ranker=ranker, spec=spec, features=dataset.features, user="user", item="user")
        save_ranker(stored, tmp_path / "model")
        register_model(start_run_tree(request, dataset), dataset, tmp_path / "model", "shunter", metrics={})
    roll_back("shunter")
    assert aliases() == {"champion": 1}


def test_damaged_version_is_not_put_back(register, tmp_path: Path) -> None:
    register()
    former = champion_of("shunter")
    assert former is not None
    register()
    weights = download(former, tmp_path / "here").model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="damaged"):
        roll_back("shunter")
    assert aliases() == {"champion": 2, "previous": 1}


def test_a_version_whose_package_is_not_installed_any_more_is_not_put_back(
    register, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        register()
    monkeypatch.setattr(versions, "MODEL_FAMILIES", Registry("model", {}, "shunter.no_models"))
    with pytest.raises(UnknownNameError) as refused:
        roll_back("shunter")
    assert refused.value.name == SPEC.family
    assert aliases() == {"champion": 2, "previous": 1}


def test_a_fusion_needs_the_families_of_its_members() -> None:
    fusion = {"spec": {"family": "fusion", "members": "ease+itemknn", "by": "z-scores"}}
    assert [name for _, name in versions._families_in(fusion)] == ["ease", "itemknn"]


def test_the_only_model_needs_no_name_and_several_are_listed(register) -> None:
    with pytest.raises(RequestError):
        only_model()
    register()
    assert only_model() == "shunter"
    register("shop")
    with pytest.raises(SeveralModelsError) as several:
        only_model()
    assert (several.value.names, several.value.code) == (("shop", "shunter"), "several-models")
    with pytest.raises(SeveralModelsError):
        load_champion()
