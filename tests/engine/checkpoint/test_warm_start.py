"""A training that goes on from a trained model: rows follow their values, layers their fields."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.checkpoint.warm_start import SharedRows, WarmStart, tables_by_name
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.errors import CheckpointError
from shunter.model_families import MODEL_FAMILIES
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.engine.synthetic import write_dataset

SPEC = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
EXECUTION = Execution(batch_size=64)
SCHEDULE = Schedule(max_epochs=1)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=1_000)


def everything(features: Features) -> dict[str, SharedRows]:
    return {field.name: SharedRows(np.arange(field.rows), np.arange(field.rows)) for field in features.categorical}


@pytest.mark.parametrize("family", ["dlrm", "deepfm", "dcnv2", "finalmlp"])
def test_predictions_before_training_are_those_of_the_former_model(
    dataset: Dataset, tmp_path: Path, family: str
) -> None:
    assert family in MODEL_FAMILIES.names
    spec = model_spec(**{**SPEC.to_dict(), "family": family})
    former = train(TrainingJob(dataset, spec, Hyperparameters(), EXECUTION, SCHEDULE)).model
    save_model(former, tmp_path / "former")
    model = build_model(spec, dataset.features, seed=5)
    taken = WarmStart(tmp_path / "former", everything(dataset.features)).apply(model)
    assert taken.layers
    assert taken.rows == sum(field.rows for field in dataset.features.categorical)
    for split in ("validation", "test"):
        expected = evaluate(former, dataset, split, EXECUTION).logits
        np.testing.assert_array_equal(evaluate(model, dataset, split, EXECUTION).logits, expected)


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(1, 8)), shared=st.integers(0, 7), new=st.integers(1, 4))
def test_rows_follow_their_values_and_new_ones_stay_as_initialised(
    order: list[int], shared: int, new: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of the former ids 1 to 7 the first `shared` of `order` are known now, as 1, 2, ...; id 0 is the unknown value."""
    directory = tmp_path_factory.mktemp("former")
    fields = (CategoricalFeature(name="first", rows=3), CategoricalFeature(name="user", rows=8))
    former = build_model(SPEC, Features(dense=(), categorical=fields), seed=1)
    save_model(former, directory)
    features = Features(dense=(), categorical=(replace(fields[1], rows=1 + shared + new), fields[0]))
    model = build_model(SPEC, features, seed=2)
    before = model.embeddings.weight.clone()
    now, of = np.arange(shared + 1), np.array([0, *order[:shared]], np.int64)
    taken = WarmStart(directory, {"user": SharedRows(now, of), "gone": SharedRows(now, of)}).apply(model)
    assert taken.rows == shared + 1
    assert not taken.layers, "the fields stand in another order"
    user, former_user = tables_by_name(model)["user"], tables_by_name(former)["user"]
    weight = model.embeddings.weight
    assert torch.equal(user[: shared + 1], former_user[torch.from_numpy(of)])
    first = int(user.storage_offset()) // weight.shape[1]
    untouched = torch.ones(len(weight), dtype=torch.bool)
    untouched[first : first + shared + 1] = False
    assert torch.equal(weight[untouched], before[untouched])


def test_tables_in_fp16_go_on_from_those_in_fp32(dataset: Dataset, tmp_path: Path) -> None:
    former = build_model(SPEC, dataset.features, seed=1)
    save_model(former, tmp_path / "former")
    model = build_model(replace(SPEC, table_precision="fp16"), dataset.features, seed=5)
    assert WarmStart(tmp_path / "former", everything(dataset.features)).apply(model).layers
    assert torch.equal(model.embeddings.weight, former.embeddings.weight.half())


def test_layers_over_other_columns_start_anew(dataset: Dataset, tmp_path: Path) -> None:
    former = build_model(SPEC, dataset.features, seed=1)
    save_model(former, tmp_path)
    swapped = replace(dataset.features, dense=dataset.features.dense[::-1])
    model = build_model(SPEC, swapped, seed=2)
    before = {name: tensor.clone() for name, tensor in model.layers.state_dict().items()}
    assert not WarmStart(tmp_path, everything(swapped)).apply(model).layers
    assert all(torch.equal(before[name], tensor) for name, tensor in model.layers.state_dict().items())


def test_member_of_an_ensemble_is_taken_and_a_missing_one_is_said(dataset: Dataset, tmp_path: Path) -> None:
    members = [build_model(SPEC, dataset.features, seed=seed).eval() for seed in (1, 2)]
    save_model(Ensemble(members, [0.5, 0.5]), tmp_path)
    model = build_model(SPEC, dataset.features, seed=3)
    WarmStart(tmp_path, everything(dataset.features), member=1).apply(model)
    assert torch.equal(model.embeddings.weight, members[1].embeddings.weight)
    with pytest.raises(CheckpointError, match="no member number 2"):
        WarmStart(tmp_path, {}, member=2).apply(model)


def test_interrupted_warm_training_goes_on_and_a_cold_one_does_not_take_its_checkpoint(
    dataset: Dataset, tmp_path: Path
) -> None:
    save_model(train(TrainingJob(dataset, SPEC, Hyperparameters(), EXECUTION, SCHEDULE)).model, tmp_path / "former")
    start = WarmStart(tmp_path / "former", everything(dataset.features))
    expected = train(TrainingJob(dataset, SPEC, Hyperparameters(), EXECUTION, SCHEDULE, warm_start=start)).model

    def stop(step: int, _: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            TrainingJob(dataset, SPEC, Hyperparameters(), EXECUTION, SCHEDULE, warm_start=start),
            Hooks(on_step=stop),
            Checkpointing(tmp_path / "checkpoint"),
        )
    with pytest.raises(CheckpointError, match="warm start"):
        train(
            TrainingJob(dataset, SPEC, Hyperparameters(), EXECUTION, SCHEDULE),
            checkpointing=Checkpointing(tmp_path / "checkpoint"),
        )
    resumed = train(
        TrainingJob(dataset, SPEC, Hyperparameters(), EXECUTION, SCHEDULE, warm_start=start),
        checkpointing=Checkpointing(tmp_path / "checkpoint"),
    ).model
    cold = train(TrainingJob(dataset, SPEC, Hyperparameters(), EXECUTION, SCHEDULE)).model
    assert torch.equal(resumed.embeddings.weight, expected.embeddings.weight)
    assert not torch.equal(resumed.embeddings.weight, cold.embeddings.weight)
