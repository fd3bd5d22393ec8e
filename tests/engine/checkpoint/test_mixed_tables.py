"""Trainings of models whose tables differ in width, or have fewer rows than ids, and whose vectors meet otherwise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.checkpoint.warm_start import SharedRows, WarmStart, tables_by_name
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.memory import check_tables_fit
from shunter.errors import RequestError
from shunter.models.ensemble import Ensemble
from shunter.models.families.dlrm import DlrmSpec
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import Features, ModelSpec
from tests.engine.interruptions import interrupt_at
from tests.engine.synthetic import write_dataset

SPEC = model_spec(
    embedding_dim=8,
    bottom_widths=(8,),
    top_widths=(16,),
    interaction="attention",
    table_dims=(4, 8, 8, 4),
    table_shares=(1.0, 0.1, 1.0, 0.5),
)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)
EXECUTION = Execution(threads=1, batch_size=64)
SCHEDULE = Schedule(max_epochs=2, seed=3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_500)


def everything(features: Features) -> dict[str, SharedRows]:
    return {field.name: SharedRows(np.arange(field.rows), np.arange(field.rows)) for field in features.categorical}


def test_an_interrupted_training_ends_bitwise_as_one_that_is_not(dataset: Dataset, tmp_path: Path) -> None:
    expected = train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE))

    with pytest.raises(KeyboardInterrupt):
        train(
            TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE),
            Hooks(on_step=interrupt_at(20)),
            Checkpointing(tmp_path),
        )
    resumed = train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE), checkpointing=Checkpointing(tmp_path))
    assert [report.validation for report in resumed.history] == [report.validation for report in expected.history]
    for name, weight in expected.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name


def four(*values: float) -> st.SearchStrategy[tuple]:
    return st.tuples(*[st.sampled_from(values)] * 4)


SPECS = st.builds(
    DlrmSpec,
    embedding_dim=st.just(8),
    bottom_widths=st.sampled_from(((), (8,))),
    top_widths=st.sampled_from(((), (4,), (8, 4, 8))),
    interaction=st.sampled_from(("dot", "linear", "fm", "cross", "attention")),
    table_dims=four(4, 8),
    table_shares=four(1.0, 0.3, 0.02),
)


@settings(max_examples=12, deadline=None)
@given(spec=SPECS)
def test_whatever_is_built_trains_and_scores_the_same_from_its_file(
    dataset: Dataset, tmp_path_factory: pytest.TempPathFactory, spec: ModelSpec
) -> None:
    folder = tmp_path_factory.mktemp("model")
    execution = replace(EXECUTION, batch_size=1_050)
    trained = train(TrainingJob(dataset, spec, RATES, execution, replace(SCHEDULE, max_epochs=1))).model
    untrained = build_model(spec, dataset.features, seed=3)
    for now, before in zip(trained.embeddings.tables, untrained.embeddings.tables, strict=True):
        assert not torch.equal(now, before), "every table learns"
    save_model(Ensemble([trained, untrained.eval()], [1, 1]).eval(), folder)
    logits = evaluate(load_model(folder), dataset, "test", execution).logits
    both = [evaluate(model, dataset, "test", execution).logits for model in (trained, untrained)]
    np.testing.assert_allclose(logits, np.mean(both, axis=0), atol=1e-6)


def test_a_warm_start_takes_the_rows_of_tables_alike(dataset: Dataset, tmp_path: Path) -> None:
    former = train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE)).model
    save_model(former, tmp_path)
    alike = build_model(SPEC, dataset.features, seed=9)
    taken = WarmStart(tmp_path, everything(dataset.features)).apply(alike)
    assert taken.layers
    assert taken.rows == sum(table.rows for table in SPEC.tables(dataset.features))
    assert torch.equal(alike.embeddings.weight, former.embeddings.weight)


def test_a_warm_start_fills_a_whole_table_from_shared_rows_and_leaves_other_widths(
    dataset: Dataset, tmp_path: Path
) -> None:
    former = build_model(SPEC, dataset.features, seed=1)
    save_model(former, tmp_path)
    model = build_model(replace(SPEC, table_dims=(), table_shares=()), dataset.features, seed=2)
    taken = WarmStart(tmp_path, everything(dataset.features)).apply(model)
    before, now = tables_by_name(former), tables_by_name(model)
    ids = torch.arange(len(now["single1"]))
    assert torch.equal(now["single1"], before["single1"][ids % len(before["single1"])])
    assert torch.equal(now["single2"], before["single2"])
    assert taken.rows == len(now["single1"]) + len(now["single2"]), "the others are wider now"
    assert not taken.layers


def test_memory_is_asked_for_the_rows_and_widths_there_are(dataset: Dataset) -> None:
    needed = sum(table.rows * (table.width + 1) * 4 for table in SPEC.tables(dataset.features))
    check_tables_fit(SPEC, dataset.features, EXECUTION, available_bytes=needed)
    largest = 52 * 9 * 4
    with pytest.raises(RequestError, match=f"take {needed:,} bytes, {largest:,} of them for the 52 rows .*'single2'"):
        check_tables_fit(SPEC, dataset.features, EXECUTION, available_bytes=needed - 1)


def test_a_file_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    cached = replace(EXECUTION, embedding_memory_bytes=100)
    with pytest.raises(RequestError, match="of several widths or shared rows take"):
        train(TrainingJob(dataset, SPEC, RATES, cached, SCHEDULE), checkpointing=Checkpointing(tmp_path))
