"""Fine-tuning of a model with compressed layers by distillation from the original model."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied
from shunter.extensions.compression.product_learning import groups_of
from shunter.models.registry import Model


@dataclass(frozen=True)
class FineTuning:
    """Settings of the fine-tuning.

    Attributes:
        rows: Number of training rows.
        batch_rows: Rows per step.
        learning_rate: Initial rate of weights and prototypes; falls to 0 with a cosine schedule.
        sharpness_rate: Learning rate of the softmax temperatures of lookup-table layers (`product_learning`).
        seed: Seed of the order of the rows.
    """

    rows: int = 65_536
    batch_rows: int = 512
    learning_rate: float = 5e-4
    sharpness_rate: float = 1e-2
    seed: int = 0


def fine_tune(layers: nn.Module, teacher: Model, dataset: Dataset, execution: Execution, how: FineTuning) -> None:
    """Train layers to predict what a model predicts (Hinton et al., arXiv 1503.02531), from its own embeddings.

    Labels are not used, because a click model overfits rows that it sees again.

    Args:
        layers: Layers to train, on the CPU, which replace the teacher's layers.
        teacher: Original model, in evaluation mode.
        dataset: Data set of the model.
        execution: Execution that gives the threads.
        how: Settings of the fine-tuning.

    Raises:
        DataError: An array cannot be read.
    """
    layers.eval()  # no dropout, and fixed statistics of batch normalisation
    size = min(how.batch_rows, dataset.splits["train"].rows)
    loader = BatchLoader(dataset, "train", size, shuffle=True, seed=how.seed)
    steps = max(1, how.rows // size)
    optimizer = torch.optim.Adam(groups_of(layers, how.learning_rate, how.sharpness_rate))
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    step, epoch = 0, 0
    with applied(execution), torch.enable_grad():
        while step < steps:
            for batch in loader.batches(epoch=epoch):
                with torch.no_grad():
                    inputs = teacher.layer_inputs(*batch.inputs)
                    said = teacher.layers(*inputs).float()
                optimizer.zero_grad(set_to_none=True)
                learned = layers(*inputs).float()
                if teacher.features.number is None:
                    loss = nn.functional.binary_cross_entropy_with_logits(learned, said.sigmoid())
                else:
                    loss = nn.functional.mse_loss(learned, said)
                loss.backward()
                optimizer.step()
                rate.step()
                step += 1
                if step >= steps:
                    break
            epoch += 1


@torch.no_grad()
def divergence(layers: nn.Module, teacher: Model, inputs: tuple[torch.Tensor, ...]) -> float:
    """Return the mean divergence of the predictions of compressed layers from those of the original model.

    It is the Kullback-Leibler divergence of clicks in nats, or the squared difference of the outputs for numbers.

    Args:
        layers: Compressed layers.
        teacher: Original model.
        inputs: Inputs of the layers for a sample of rows (`Recommender.layer_inputs`).
    """
    said, other = (one(*inputs).double() for one in (teacher.layers, layers))
    if teacher.features.number is not None:
        return float(nn.functional.mse_loss(other, said))
    log = nn.functional.logsigmoid
    found = said.sigmoid() * (log(said) - log(other)) + (-said).sigmoid() * (log(-said) - log(-other))
    return float(found.mean())
