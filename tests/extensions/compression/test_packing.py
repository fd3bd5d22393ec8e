"""Packed models: within their bytes, close to what they were, and stored as they score."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shunter.engine.checkpoint.storage import is_packed, load_model, save_model
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.errors import CheckpointError
from shunter.extensions.compression.memory_limit import row_uses
from shunter.extensions.compression.packing import Form, hidden_units, pack, stored_bytes, unpack
from shunter.model_families import MODEL_FAMILIES
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, build_model, model_spec
from tests.engine.synthetic import write_dataset

PLENTY = 1 << 30
BITS = st.sampled_from([2, 4, 8])
FORMS = st.builds(Form, row_bits=BITS, layer_bits=BITS, unit_share=st.floats(0.05, 1), has_check_bits=st.booleans())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=400, ids=200)


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> Model:
    return build_model(model_spec(embedding_dim=8, top_widths=(64, 32)), dataset.features).eval()


def packed_within(model: Model, dataset: Dataset, form: Form, limit: int = PLENTY) -> dict[str, Tensor]:
    found = pack(model, form, row_uses(dataset, model.spec), limit)
    assert found is not None
    return found


def test_uses_are_those_of_the_training_part(dataset: Dataset, model: Model) -> None:
    uses = row_uses(dataset, model.spec)
    ids = np.load(dataset.directory / "train.categorical.npy")
    assert [len(used) for used in uses] == [field.rows for field in dataset.features.categorical]
    assert uses[1].tolist() == [int((ids[:, 1] == row).sum()) for row in range(len(uses[1]))]
    assert uses[3].sum() == len(np.load(dataset.directory / "train.bag3.values.npy"))


@settings(deadline=None, max_examples=15)
@given(form=FORMS, limit=st.integers(3_000, 60_000))
def test_a_packed_model_is_within_its_bytes_and_has_all_weights(
    dataset: Dataset, model: Model, form: Form, limit: int
) -> None:
    found = pack(model, form, row_uses(dataset, model.spec), limit)
    if found is None:
        return
    assert stored_bytes(found) <= limit
    weights, state = unpack(model, found), model.state_dict()
    assert {name: tensor.shape for name, tensor in weights.items()} == {name: one.shape for name, one in state.items()}


@pytest.mark.parametrize("family", sorted({*MODEL_FAMILIES.names} - {"esmm", "sequence", "din", "bst", "hstu"}))
def test_every_family_of_any_features_is_packed_closely(dataset: Dataset, family: str) -> None:
    model = build_model(model_spec(family), dataset.features)
    weights = unpack(model, packed_within(model, dataset, Form()))
    for name, tensor in model.state_dict().items():
        assert weights[name] == pytest.approx(tensor, abs=float(tensor.abs().max()) / 50), name


def test_rows_that_are_used_most_are_kept_and_the_others_are_one(dataset: Dataset, model: Model) -> None:
    weights = unpack(model, packed_within(model, dataset, Form(), limit=14_000))
    table, uses = model.embeddings.tables[0], row_uses(dataset, model.spec)[0]
    there = weights["embeddings.weight"][: len(table)]
    is_kept = (there - table).abs().amax(1) < 0.01 * table.abs().max()
    is_kept[0] = True
    rest = there[~is_kept]
    assert 0 < len(rest) < len(table) - 1
    assert (rest == rest[0]).all()
    assert uses[~is_kept.numpy()].max() <= uses[1:][is_kept.numpy()[1:]].min()


def test_weak_hidden_units_say_nothing(model: Model, dataset: Dataset) -> None:
    (first, second), *_ = [pair for pair in hidden_units(model.layers) if pair[0].startswith("top")]
    weights = unpack(model, packed_within(model, dataset, Form(unit_share=0.5)))
    columns = weights[f"layers.{second}.weight"].abs().amax(0)
    assert int((columns == 0).sum()) == len(columns) // 2
    assert ((weights[f"layers.{first}.weight"].abs().amax(1) == 0) == (columns == 0)).all()


@pytest.mark.parametrize("members", [0, 2])
def test_what_is_stored_is_what_scores(tmp_path: Path, dataset: Dataset, model: Model, members: int) -> None:
    form = Form(row_bits=4, layer_bits=4, unit_share=0.5, has_check_bits=members > 0)
    packed = [
        packed_within(build_model(model.spec, model.features, seed=seed), dataset, form, 20_000) for seed in (0, 1)
    ]
    whole = Ensemble([model] * members, [1.0] * members) if members else model
    save_model(whole, tmp_path, packed[: max(members, 1)])
    loaded = load_model(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size <= max(members, 1) * 20_000 + 500
    plain = [build_model(model.spec, model.features, seed=2) for _ in packed]
    for one, tensors in zip(plain, packed, strict=True):
        one.load_state_dict(unpack(model, tensors))
    expected = evaluate(Ensemble(plain, [1.0] * members) if members else plain[0], dataset, "test", Execution())
    for again in (loaded, load_model(tmp_path, is_mapped=True)):
        assert np.array_equal(evaluate(again, dataset, "test", Execution()).logits, expected.logits)


def test_too_few_bytes_and_another_model_are_refused(tmp_path: Path, dataset: Dataset, model: Model) -> None:
    assert pack(model, Form(), row_uses(dataset, model.spec), 1_000) is None
    found = packed_within(model, dataset, Form())
    assert is_packed(found)
    assert not is_packed(model.state_dict())
    other = build_model(model_spec(embedding_dim=4, top_widths=(64, 32)), dataset.features)
    save_model(other, tmp_path, [found])
    with pytest.raises(CheckpointError, match="another model"):
        load_model(tmp_path)
