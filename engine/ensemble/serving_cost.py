"""Serving cost of a model: measured milliseconds and joules per predicted row, and bytes of the weights."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied
from shunter.errors import InfeasibleError
from shunter.hardware.meters.meter import measure_energy
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model

WARM_UP, REPEATS = 5, 40


@dataclass(frozen=True, kw_only=True)
class ServingCost:
    """Serving cost of one model.

    Attributes:
        milliseconds: Median time of a prediction of one row, measured on the device of the scoring.
        weight_bytes: Bytes of the weights.
        joules: Mean energy of a prediction of one row; None if no meter can measure or estimate it.
        joules_by: Source of the energy: `measured`, `estimated` or `unavailable`.
    """

    milliseconds: float
    weight_bytes: int
    joules: float | None = None
    joules_by: str = "unavailable"


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """Limits of the time and the energy of predicting one row; None is no limit."""

    milliseconds: float | None = None
    joules: float | None = None

    @property
    def is_set(self) -> bool:
        """Return True if the time or the energy of a prediction is limited."""
        return self.milliseconds is not None or self.joules is not None

    def are_kept_by(self, costs: Sequence[ServingCost]) -> bool:
        """Return True if models that score a row one after the other meet the limits in total."""
        is_fast = self.milliseconds is None or sum(one.milliseconds for one in costs) <= self.milliseconds
        drawn = [one.joules for one in costs]
        return is_fast and (self.joules is None or (None not in drawn and sum(filter(None, drawn)) <= self.joules))


def serving_cost(model: Model | Ensemble, dataset: Dataset, execution: Execution) -> ServingCost:
    """Measure predictions of single rows of the validation part, one after the other, by a model in evaluation mode.

    Raises:
        DataError: An array cannot be read.
    """
    loader = BatchLoader(dataset, "validation", 1)
    rows = islice(loader.rows_of_batches(), WARM_UP + REPEATS)
    seconds = []
    with applied(execution) as device, torch.no_grad():
        batches = [loader.read(chosen).to(device) for chosen in rows]
        for batch in batches[:WARM_UP]:
            model(*batch.inputs).cpu()
        measured = batches[WARM_UP:] or batches
        with measure_energy(execution.device, cores=execution.threads) as meter:
            for batch in measured:
                began = time.perf_counter()
                model(*batch.inputs).cpu()  # waits for the device
                seconds.append(time.perf_counter() - began)
    reading = meter.reading
    weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    return ServingCost(
        milliseconds=1e3 * statistics.median(seconds),
        weight_bytes=weight_bytes,
        joules=None if reading.joules is None else reading.joules / len(measured),
        joules_by=reading.method,
    )


def within_limits(
    costs: Sequence[ServingCost], most: int | None, limits: ServingLimits
) -> tuple[list[int], int | None]:
    """Return the members that an ensemble may contain and its maximum size, such that it meets all limits.

    Args:
        costs: Cost of a prediction by each member; the costs of an ensemble's members add up.
        most: Largest number of members; None is no limit.
        limits: Limits of a prediction's cost.

    Returns:
        The members that keep each limit alone, in their order, and the largest number of them that keeps the limits
        together; None if no limit bounds that number.

    Raises:
        InfeasibleError: No member keeps the limits.
    """
    within = list(range(len(costs)))
    if limits.milliseconds is not None:
        taken = [costs[index].milliseconds for index in within]
        within, most = affordable(taken, most, limits.milliseconds, "--max-predict-milliseconds")
    if limits.joules is not None:
        known = [index for index in within if costs[index].joules is not None]
        if not known:
            raise InfeasibleError(
                "The energy of a prediction is unknown on this machine, so --max-predict-joules cannot be checked: "
                "leave it out."
            )
        drawn = [costs[index].joules or 0.0 for index in known]
        chosen, most = affordable(drawn, most, limits.joules, "--max-predict-joules")
        within = [known[index] for index in chosen]
    return within, most


def affordable(
    costs: Sequence[float], most: int | None, limit: float, option: str = "--max-predict-milliseconds"
) -> tuple[list[int], int]:
    """Return the members that an ensemble may contain and its maximum size, such that it meets one limit.

    Args:
        costs: Cost of a prediction by each member; the costs of an ensemble's members add up.
        most: Largest number of members; None is no limit.
        limit: Largest cost of a prediction.
        option: Option that sets the limit, with the unit in its name.

    Returns:
        The members that keep the limit alone, in their order, and the largest number of them that keeps it together
        even if they are the most expensive ones.

    Raises:
        InfeasibleError: No member keeps the limit.
    """
    within = [index for index, one in enumerate(costs) if one <= limit]
    if not within:
        which = "most economical" if option.endswith("joules") else "fastest"
        raise InfeasibleError(
            f"No model predicts a row within {option} {limit:g}: the {which} model takes {min(costs):.3g}; raise the "
            "limit or try a smaller model."
        )
    dearest, total, together = sorted((costs[index] for index in within), reverse=True), 0.0, 0
    for one in dearest:
        total += one
        if total > limit:
            break
        together += 1
    together = max(1, together)
    return within, together if most is None else min(most, together)
