"""A training step never reads a number back from the device, and a bf16 one stays near the fp32 one."""

from pathlib import Path

import pytest

from shunter.engine.config import Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import build_dense_optimizer, train_step
from shunter.models.embeddings.request import Kernel
from shunter.models.optimizers import DENSE_OPTIMIZERS
from shunter.models.registry import Model, build_model, model_spec
from tests.engine.synthetic import write_dataset
from tests.no_waiting import WaitError, no_waiting


def model_and_batch(directory: Path, kernel: Kernel) -> tuple[Model, Batch]:
    dataset = write_dataset(directory, rows=500)
    model = build_model(model_spec(embedding_dim=8, top_widths=(16,)), dataset.features, kernel=kernel).train()
    return model, next(BatchLoader(dataset, "train", 64).batches())


@pytest.mark.parametrize("optimizer", DENSE_OPTIMIZERS.names)
def test_no_number_is_read_within_a_step(tmp_path: Path, optimizer: str) -> None:
    # FBGEMM reads numbers too, but of its step counter alone, which it keeps on the host.
    model, batch = model_and_batch(tmp_path, "torch")
    update = build_dense_optimizer(model, Hyperparameters(dense_optimizer=optimizer))
    for precision in ("fp32", "bf16"):
        with no_waiting():
            loss = train_step(model, update, batch, precision)
        with no_waiting(), pytest.raises(WaitError):
            loss.item()


def test_the_loss_of_a_bf16_step_is_near_that_of_an_fp32_step(tmp_path: Path) -> None:
    losses = []
    for precision in ("fp32", "bf16"):
        model, batch = model_and_batch(tmp_path / precision, "auto")
        update = build_dense_optimizer(model, Hyperparameters())
        losses.append(float(train_step(model, update, batch, precision)))
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
