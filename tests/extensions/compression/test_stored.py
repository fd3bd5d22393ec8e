"""Models with smaller forms of layers as files: what is loaded scores what was saved, and nothing learns from it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.checkpoint.warm_start import WarmStart
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.evaluation import evaluate
from shunter.errors import CheckpointError
from shunter.extensions.compression.bench import weight_bytes
from shunter.extensions.compression.compressed_linear import Int8Linear
from shunter.extensions.compression.subject import hidden_linears, inputs_of_layers, members_of, with_forms
from shunter.model_families import MODEL_FAMILIES
from shunter.models.ensemble import Ensemble
from shunter.models.layers import after_relu
from shunter.models.registry import Model, build_model, model_spec
from tests.engine.synthetic import write_dataset

EXECUTION = Execution()
SPEC = model_spec(embedding_dim=4, bottom_widths=(40,), top_widths=(48, 32))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=400)


def logits(model: Model | Ensemble, dataset: Dataset) -> np.ndarray:
    return evaluate(model, dataset, "test", EXECUTION).logits


def in_8_bits(model: Model | Ensemble) -> Model | Ensemble:
    forms = {place: Int8Linear.of(linear, is_signed=True) for place, linear in hidden_linears(model).items()}
    return with_forms(model, forms)


@pytest.mark.parametrize("is_ensemble", [False, True])
def test_a_saved_model_scores_alike_bit_by_bit_and_the_original_stays(
    dataset: Dataset, tmp_path: Path, is_ensemble: bool
) -> None:
    models = [build_model(SPEC, dataset.features, seed=seed).eval() for seed in (1, 2)]
    model = Ensemble(models, [0.25, 0.75], scale=0.9).eval() if is_ensemble else models[0]
    before = logits(model, dataset)
    smaller = in_8_bits(model)
    np.testing.assert_array_equal(logits(model, dataset), before)
    assert weight_bytes(smaller) < weight_bytes(model)
    assert 0 < np.abs(logits(smaller, dataset) - before).max() < 0.1
    save_model(smaller, tmp_path / "model")
    for is_mapped in (False, True):
        loaded = load_model(tmp_path / "model", is_mapped=is_mapped)
        np.testing.assert_array_equal(logits(loaded, dataset), logits(smaller, dataset))
    save_model(model, tmp_path / "plain")
    assert "compression" not in json.loads((tmp_path / "plain" / "model.json").read_text())


def test_families_have_layers_for_it_or_none(dataset: Dataset) -> None:
    rows = BatchLoader(dataset, "train", 16).read(slice(0, 16))
    for family in sorted({"dcnv2", "deepfm", "dhen", "finalmlp", "masknet", "gdcn", "lr"} & {*MODEL_FAMILIES.names}):
        options = {"top_widths": (48, 32)} if MODEL_FAMILIES.capability(family, "has_hidden_layers") else {}
        model = build_model(model_spec(family, embedding_dim=4, **options), dataset.features).eval()
        smaller = in_8_bits(model)
        assert smaller(*rows.inputs).shape == (16,)
        assert set(inputs_of_layers(model, rows)) == set(hidden_linears(model))


def test_layers_after_a_relu_see_nothing_negative(dataset: Dataset) -> None:
    model = build_model(SPEC, dataset.features).eval()
    (member,) = members_of(model)
    rows = BatchLoader(dataset, "train", 64).read(slice(0, 64))
    signs = {path: bool((seen < 0).any()) for (_, path), seen in inputs_of_layers(model, rows).items()}
    assert set(after_relu(member.layers)) >= {path for path in signs if path == "top.2"}
    assert not any(signs.get(path) for path in after_relu(member.layers))


def test_a_training_does_not_go_on_from_it(dataset: Dataset, tmp_path: Path) -> None:
    save_model(in_8_bits(build_model(SPEC, dataset.features).eval()), tmp_path)
    with pytest.raises(CheckpointError, match="is compressed"):
        WarmStart(tmp_path, {}).load()


@pytest.mark.parametrize(
    "form",
    [
        {"top.0": {"form": "int9", "is_signed": 1}},
        {"top.1": {"form": "int8", "is_signed": 1}},
        {"nowhere": {"form": "int8", "is_signed": 1}},
        {"top.0": {"form": "int8"}},
        {"top.0": {"form": "int8", "is_signed": "yes"}},
        {"top.0": {}},
    ],
)
def test_a_description_of_no_known_form_is_refused(dataset: Dataset, tmp_path: Path, form: dict[str, object]) -> None:
    save_model(in_8_bits(build_model(SPEC, dataset.features).eval()), tmp_path)
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**read_json(path), "compression": [{"layers": form}]}))
    with pytest.raises(CheckpointError, match="does not describe a model of this version"):
        load_model(tmp_path)


def test_weights_of_the_size_of_a_whole_model_are_not_asked_for(dataset: Dataset, tmp_path: Path) -> None:
    model = build_model(SPEC, dataset.features).eval()
    save_model(in_8_bits(model), tmp_path)
    with torch.no_grad():
        assert (tmp_path / "model.safetensors").stat().st_size < 1.2 * weight_bytes(in_8_bits(model)) + 4096
