"""What a prediction costs: measured milliseconds of one row, and counted bytes of the weights."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.config import Execution
from engine.data.dataset import Dataset
from engine.data.loader import BatchLoader
from engine.loop.step import applied
from models.ensemble import Ensemble
from models.registry import Model
from shunter.errors import InfeasibleError

WARM_UP, REPEATS = 5, 40


@dataclass(frozen=True, kw_only=True)
class ServingCost:
    """Of one model.

    Attributes:
        milliseconds: Median time of a prediction of one row, measured on the device of the scoring.
        weight_bytes: Bytes of its weights.
    """

    milliseconds: float
    weight_bytes: int


def serving_cost(model: Model | Ensemble, dataset: Dataset, execution: Execution) -> ServingCost:
    """Measure predictions of single rows of the validation part, one after the other.

    Args:
        model: Model in evaluation mode.
        dataset: Data that it reads.
        execution: Device, threads and precision.

    Raises:
        DataError: An array cannot be read.
    """
    loader = BatchLoader(dataset, "validation", 1)
    rows = list(loader.rows_of_batches())[: WARM_UP + REPEATS]
    seconds = []
    with applied(execution) as device, torch.no_grad():
        for chosen in rows:
            batch = loader.read(chosen).to(device)
            began = time.perf_counter()
            model(*batch.inputs).cpu()  # waits for the device
            seconds.append(time.perf_counter() - began)
    weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    return ServingCost(milliseconds=1e3 * statistics.median(seconds[WARM_UP:] or seconds), weight_bytes=weight_bytes)


def affordable(milliseconds: Sequence[float], most: int | None, limit: float) -> tuple[list[int], int]:
    """Which members may be combined, and how many, so that whichever are taken they keep the limit together.

    Args:
        milliseconds: Of a prediction by each member; those of an ensemble add up.
        most: Members at most; None sets no bound.
        limit: Milliseconds of a prediction at most.

    Returns:
        The members that keep it alone, in their order, and how many of them keep it together even if they are the
        slowest.

    Raises:
        InfeasibleError: None keeps it.
    """
    within = [index for index, one in enumerate(milliseconds) if one <= limit]
    if not within:
        raise InfeasibleError(
            f"No model predicts a row within --max-predict-milliseconds {limit:g}, the fastest takes "
            f"{min(milliseconds):.3g}: raise the limit or try a smaller model."
        )
    slowest, total, together = sorted((milliseconds[index] for index in within), reverse=True), 0.0, 0
    for one in slowest:
        total += one
        if total > limit:
            break
        together += 1
    together = max(1, together)
    return within, together if most is None else min(most, together)
