"""Fine-tuning of a model with smaller layers: it learns to say what the model that it was made of says."""

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
    """How a smaller model is fine-tuned.

    Attributes:
        rows: Rows of the training part that it sees.
        batch_rows: Rows of a step.
        learning_rate: Of weights and prototypes, at first; it falls to 0 along half a cosine.
        sharpness_rate: Of the temperatures.
        seed: Of the order of the rows.
    """

    rows: int = 65_536
    batch_rows: int = 512
    learning_rate: float = 5e-4
    sharpness_rate: float = 1e-2
    seed: int = 0


def fine_tune(layers: nn.Module, teacher: Model, dataset: Dataset, execution: Execution, how: FineTuning) -> None:
    """Let layers learn the probabilities of a model (Hinton et al., arXiv 1503.02531) over its own embeddings.

    Labels are not looked at: a model of clicks learns rows by heart when it sees them again.

    Args:
        layers: What learns, on the CPU, in the place of the teacher's layers.
        teacher: The model as it is, in evaluation mode.
        dataset: Its data.
        execution: Threads.
        how: For how long.

    Raises:
        DataError: An array cannot be read.
    """
    layers.eval()  # without dropout, and with the statistics of batch normalisation as they are
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
                    said = torch.sigmoid(teacher.layers(*inputs).float())
                optimizer.zero_grad(set_to_none=True)
                nn.functional.binary_cross_entropy_with_logits(layers(*inputs).float(), said).backward()
                optimizer.step()
                rate.step()
                step += 1
                if step >= steps:
                    break
            epoch += 1


@torch.no_grad()
def divergence(model: nn.Module, teacher: nn.Module, inputs: tuple[torch.Tensor, ...]) -> float:
    """Mean Kullback-Leibler divergence of what some layers say of rows from what others say, in nats.

    Args:
        model: The layers.
        teacher: The others.
        inputs: What both take of the rows (`Recommender.layer_inputs`).
    """
    said, other = (layers(*inputs).double() for layers in (teacher, model))
    log = nn.functional.logsigmoid
    found = said.sigmoid() * (log(said) - log(other)) + (-said).sigmoid() * (log(-said) - log(-other))
    return float(found.mean())
