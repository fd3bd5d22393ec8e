"""Trainings whose tables are kept in fp16: interrupted, finished, saved and loaded."""

from pathlib import Path

import pytest
import torch

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.errors import RequestError
from shunter.extensions.tiers.stored_models import load_stored_model
from shunter.models.counting import count_model, count_parameter_bytes
from shunter.models.registry import model_spec
from tests.engine.interruptions import interrupt_at
from tests.engine.synthetic import write_dataset

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.3, table_precision="fp16")
EXECUTION = Execution(batch_size=64)
SCHEDULE = Schedule(max_epochs=2, patience=2, seed=3)
# An embedding rate that is warmed up, and a decay, as the tables in fp32 have them.
RATES = Hyperparameters(embedding_learning_rate=0.1, embedding_l2=1e-4, warmup_epochs=0.5)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=3_000)


@pytest.fixture(scope="module")
def undisturbed(dataset: Dataset) -> TrainResult:
    return train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE))


@pytest.mark.parametrize(
    "checkpoint_settings",
    [CheckpointSettings(), CheckpointSettings(rows="consecutive")],
    ids=["whole", "rows that changed"],
)
def test_interrupted_anywhere_the_result_is_bitwise_the_same(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path, checkpoint_settings: CheckpointSettings
) -> None:
    job, checkpointing = (
        TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE),
        Checkpointing(tmp_path, checkpoint_settings=checkpoint_settings),
    )
    for stop in (1, 20, 40):
        with pytest.raises(KeyboardInterrupt):
            train(job, Hooks(on_step=interrupt_at(stop)), checkpointing)
    resumed = train(job, checkpointing=checkpointing)
    assert resumed.model.embeddings.weight.dtype == torch.float16
    for name, tensor in undisturbed.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name
    assert torch.equal(resumed.model.embeddings.adagrad_sum, undisturbed.model.embeddings.adagrad_sum)


def test_a_checkpoint_in_few_bits_is_gone_on_from(dataset: Dataset, undisturbed: TrainResult, tmp_path: Path) -> None:
    job, checkpointing = (
        TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE),
        Checkpointing(tmp_path, checkpoint_settings=CheckpointSettings(bits=8)),
    )

    with pytest.raises(KeyboardInterrupt):
        train(job, Hooks(on_step=interrupt_at(40)), checkpointing)
    resumed = train(job, checkpointing=checkpointing)
    assert abs(resumed.validation.logloss - undisturbed.validation.logloss) < 0.01


def test_it_learns_as_well_as_in_fp32(dataset: Dataset, undisturbed: TrainResult) -> None:
    spec = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.3)
    full = train(TrainingJob(dataset, spec, RATES, EXECUTION, SCHEDULE))
    assert abs(undisturbed.validation.logloss - full.validation.logloss) < 0.005
    assert not torch.equal(undisturbed.model.embeddings.weight.float(), full.model.embeddings.weight)


def test_a_saved_model_scores_as_the_one_that_was_trained_and_takes_half_the_bytes(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path
) -> None:
    save_model(undisturbed.model, tmp_path)
    loaded = load_model(tmp_path)
    one, other = (evaluate(model, dataset, "test", EXECUTION) for model in (undisturbed.model, loaded))
    assert (one.logits == other.logits).all()
    rows = sum(dataset.features.table_rows)
    full = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.3)
    saved = [count_parameter_bytes(spec, dataset.features) for spec in (SPEC, full)]
    assert saved[1] - saved[0] == rows * 8 * 2
    assert loaded.state_dict()["embeddings.weight"].nbytes == rows * 8 * 2
    counts = [count_model(spec, dataset.features) for spec in (SPEC, full)]
    assert counts[1].parameter_bytes - counts[0].parameter_bytes == rows * 8 * 2
    assert counts[1].optimizer_bytes == counts[0].optimizer_bytes
    with pytest.raises(RequestError, match="--memory"):
        load_stored_model(tmp_path, 100)


def test_tables_in_a_file_are_refused(dataset: Dataset) -> None:
    execution = Execution(batch_size=64, embedding_memory_bytes=2_000)
    with pytest.raises(RequestError, match="fp16"):
        train(TrainingJob(dataset, SPEC, RATES, execution, SCHEDULE))
