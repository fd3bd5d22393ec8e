"""Models whose tables stay in the file of their weights: scores bit by bit those in memory, what cannot be is told."""

import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution
from shunter.errors import CheckpointError, RequestError
from shunter.extensions.tiers.stored_models import load_stored_model, stored_tables
from shunter.hardware.devices.memory_limits import held_bytes
from shunter.model_families import MODEL_FAMILIES
from shunter.models.combination import Combination
from shunter.models.embeddings.mapped import MappedEmbeddings
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

FEATURES = Features(
    dense=("price",),
    categorical=(
        CategoricalFeature(name="item", rows=3_000),
        CategoricalFeature(name="seen", rows=3_000, multi_valued=True, length=5, table="item"),
        CategoricalFeature(name="user", rows=9_000),
        CategoricalFeature(name="tags", rows=40, multi_valued=True),
    ),
)
MEMORY = 200_000  # of 12,040 rows of 8 numbers, 385,280 bytes


def model_of(family: str = "dlrm", seed: int = 0) -> Model:
    return build_model(model_spec(family, embedding_dim=8), FEATURES, seed=seed).eval()


def inputs(batch: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    lengths = np.ones((4, batch), np.int64)
    lengths[1], lengths[3] = random.integers(0, 6, batch), random.integers(0, 8, batch)
    ids = [random.integers(0, f.rows, n.sum()) for f, n in zip(FEATURES.categorical, lengths, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    dense = torch.from_numpy(random.random((batch, 1), np.float32))
    return dense, torch.tensor(np.concatenate(ids), dtype=torch.int32), torch.tensor(offsets, dtype=torch.int32)


@torch.no_grad()
def assert_scores_alike(directory: Path, memory: int = MEMORY) -> None:
    whole, found = load_model(directory), load_stored_model(directory, memory)
    assert stored_tables(found)
    for batch in (1, 3, 100):
        assert torch.equal(found(*inputs(batch, batch)), whole(*inputs(batch, batch)))


@pytest.mark.parametrize(
    "family", sorted({*MODEL_FAMILIES.names} - {"esmm", "mmoe", "ple"})
)  # which need several labels
def test_scores_are_those_in_memory(family: str, tmp_path: Path) -> None:
    save_model(model_of(family), tmp_path)
    assert_scores_alike(tmp_path)


def test_the_members_of_an_ensemble_share_the_memory(tmp_path: Path) -> None:
    combination = Combination(by="probabilities", slope=1.3, knots=((-1.0, -0.9), (1.0, 1.2)))
    save_model(Ensemble([model_of(), model_of("fm", 1)], [0.4, 0.6], combination=combination), tmp_path)
    assert_scores_alike(tmp_path, 2 * MEMORY)
    with torch.no_grad():
        mapped = load_model(tmp_path, is_mapped=True)
        assert torch.equal(mapped(*inputs(3)), load_model(tmp_path)(*inputs(3)))


def test_tables_that_have_room_lie_in_memory(tmp_path: Path) -> None:
    save_model(model_of(), tmp_path)
    assert not stored_tables(load_stored_model(tmp_path, 385_280))


def test_the_weights_may_be_removed_once_they_are_open(tmp_path: Path) -> None:
    save_model(model_of(), tmp_path)
    whole, found = load_model(tmp_path), load_stored_model(tmp_path, MEMORY)
    (tmp_path / "model.safetensors").unlink()
    with torch.no_grad():
        assert torch.equal(found(*inputs(50)), whole(*inputs(50)))


def test_weights_of_another_model_or_cut_off_are_refused(tmp_path: Path) -> None:
    save_model(model_of(), tmp_path / "one")
    save_model(model_of(seed=1), tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(tmp_path / "one" / "model.safetensors")
    with pytest.raises(CheckpointError, match="as for the file of another model"):
        load_stored_model(tmp_path / "one", MEMORY)
    os.truncate(tmp_path / "one" / "model.safetensors", 100_000)
    with pytest.raises(CheckpointError, match="as for the file of another model"):
        load_stored_model(tmp_path / "one", MEMORY)


def test_a_description_of_other_tables_is_refused(tmp_path: Path) -> None:
    save_model(model_of(), tmp_path)
    path = tmp_path / "model.json"
    described = read_json(path)
    described["members"][0]["embedding_dim"] = 12
    path.write_text(json.dumps(described))
    with pytest.raises(CheckpointError, match="belong to another model"):
        load_stored_model(tmp_path, MEMORY)


def test_a_memory_too_small_for_a_sample_is_one_sentence(tmp_path: Path) -> None:
    save_model(model_of(), tmp_path)
    with pytest.raises(RequestError, match="looking up one sample takes"):
        load_stored_model(tmp_path, 50_000)


def test_tables_of_several_widths_are_refused(tmp_path: Path) -> None:
    spec = model_spec(embedding_dim=8, table_dims=(8, 4, 4))
    save_model(build_model(spec, FEATURES).eval(), tmp_path)
    with pytest.raises(RequestError, match="several widths"):
        load_stored_model(tmp_path, MEMORY)


@torch.no_grad()
def test_scores_out_of_the_file_where_a_limit_leaves_no_room(tmp_path: Path) -> None:
    features = Features(dense=("price",), categorical=(CategoricalFeature(name="item", rows=400_000),))
    model = build_model(model_spec("dlrm", embedding_dim=32), features).eval()  # 51 MB
    save_model(model, tmp_path)
    given = torch.ones(4, 1), torch.tensor([0, 7, 399_999, 5]), torch.arange(5)
    wanted = model(*given)
    del model
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held_bytes("VmData:") + (40 << 20), before[1]))
    try:
        found = load_to_score(tmp_path, Execution())
        assert isinstance(found, Model)
        assert isinstance(found.embeddings, MappedEmbeddings)
        assert torch.equal(found(*given), wanted)
        assert stored_tables(load_stored_model(tmp_path, 4_000_000))  # which reads all but the tables
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert not isinstance(load_to_score(tmp_path, Execution()).embeddings, MappedEmbeddings)
