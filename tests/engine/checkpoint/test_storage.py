"""Saved models score as before, and damaged ones are refused."""

import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution
from shunter.engine.loop.evaluation import evaluate
from shunter.errors import CheckpointError, MissingExtensionError
from shunter.models.combination import Combination
from shunter.models.embeddings import kernel_choice
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, build_model, model_spec
from tests.engine.synthetic import write_dataset

FEATURES_DATA = {"rows": 200}


@pytest.fixture
def models(tmp_path: Path) -> list[Model]:
    features = write_dataset(tmp_path / "data", **FEATURES_DATA).features
    return [build_model(model_spec(embedding_dim=dim, dropout=0.1), features, seed=dim) for dim in (4, 8)]


@pytest.mark.parametrize("members", [0, 1, 2])
def test_a_loaded_model_scores_bitwise_as_the_saved_one(tmp_path: Path, models: list[Model], members: int) -> None:
    model = Ensemble(models[:members], [1.0, 3.0][:members]) if members else models[0]
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    dataset = write_dataset(tmp_path / "data", **FEATURES_DATA)
    one, other = (evaluate(either, dataset, "test", Execution()).logits for either in (model, loaded))
    assert np.array_equal(one, other)
    assert type(loaded) is type(model)
    assert not loaded.training
    assert loaded.features == model.features


def test_a_model_saved_with_one_kernel_loads_with_the_other(
    tmp_path: Path, models: list[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(models[0], tmp_path / "model")
    monkeypatch.setattr(kernel_choice, "library", lambda: None)
    loaded = load_model(tmp_path / "model")
    assert type(loaded.embeddings).__name__ == "TorchEmbeddings"  # type: ignore[union-attr]
    assert torch.equal(loaded.embeddings.weight, models[0].embeddings.weight)  # type: ignore[union-attr,arg-type]


def test_tables_are_not_drawn_to_be_overwritten(
    tmp_path: Path, models: list[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(models[0], tmp_path)
    monkeypatch.setattr(EmbeddingTables, "initialise", lambda *_: pytest.fail("drawn"))
    loaded = load_model(tmp_path)
    for name, tensor in models[0].state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_saving_again_replaces_the_model(tmp_path: Path, models: list[Model]) -> None:
    save_model(models[0], tmp_path)
    save_model(models[1], tmp_path)
    assert load_model(tmp_path).spec == models[1].spec  # type: ignore[union-attr]
    assert not list(tmp_path.glob("*.tmp"))


def test_no_code_is_stored(tmp_path: Path, models: list[Model]) -> None:
    save_model(models[0], tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "model.safetensors"]
    assert b"pickle" not in (tmp_path / "model" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "removed", "text"])
def test_a_damaged_file_is_named(tmp_path: Path, models: list[Model], name: str, damage: str) -> None:
    save_model(models[0], tmp_path)
    path = tmp_path / name
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-30])
    elif damage == "removed":
        path.unlink()
    else:
        path.write_text("[1, 2]")
    with pytest.raises(CheckpointError, match=name):
        load_model(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path, models: list[Model]) -> None:
    save_model(models[0], tmp_path / "one")
    save_model(models[1], tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(tmp_path / "one" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_model(tmp_path / "one")


def test_a_description_of_another_shape_is_refused(tmp_path: Path, models: list[Model]) -> None:
    save_model(models[0], tmp_path)
    path = tmp_path / "model.json"
    description = read_json(path)
    for change, message in (
        ({"embedding_dim": 16}, "of another model"),
        ({"depth": 3}, "does not describe a model"),
        ({"family": "wide"}, "does not describe a model"),
    ):
        changed = {**description, "members": [{**description["members"][0], **change}]}
        path.write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match=message):
            load_model(tmp_path)


@pytest.mark.parametrize(
    "damage", [{"slope": "1"}, {"intercept": "0"}, {"references": [[0.5], ["1"]]}, {"knots": [[0.0, "1"]]}]
)
def test_a_combination_with_a_text_among_its_numbers_is_refused(
    tmp_path: Path, models: list[Model], damage: dict[str, object]
) -> None:
    save_model(Ensemble(models, [1.0, 3.0], combination=Combination(by="votes", references=((0.5,), (1.0,)))), tmp_path)
    path = tmp_path / "model.json"
    description = read_json(path)
    path.write_text(json.dumps({**description, "combination": {**description["combination"], **damage}}))
    with pytest.raises(CheckpointError, match=r"model\.json"):
        load_model(tmp_path)


def test_a_model_of_an_extension_that_is_gone_names_the_extension(
    tmp_path: Path, models: list[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(models[0], tmp_path)
    path = tmp_path / "model.json"
    description = read_json(path)
    path.write_text(json.dumps({**description, "members": [{**description["members"][0], "family": "dmt"}]}))
    monkeypatch.setattr("shunter.registry._is_installed", lambda package: not package.endswith("towers"))
    with pytest.raises(MissingExtensionError) as caught:
        load_model(tmp_path)
    assert caught.value.extension == "towers"


@pytest.mark.parametrize(
    "sizes", [{"rows": 10**13}, {"rows": 10**30}, {"multi_valued": True, "length": 10**13}, {"rows": 10**7}]
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_asked_for(
    tmp_path: Path, models: list[Model], sizes: dict[str, int]
) -> None:
    save_model(models[0], tmp_path)
    path = tmp_path / "model.json"
    description = read_json(path)
    description["features"]["categorical"][0].update(sizes)
    path.write_text(json.dumps(description))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError):
        load_model(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_a_pipe_in_the_place_of_the_weights_keeps_nobody_waiting(tmp_path: Path, models: list[Model]) -> None:
    save_model(models[0], tmp_path)
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="it is a pipe"):
        load_model(tmp_path)
