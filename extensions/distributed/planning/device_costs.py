"""Costs of rows and layers on one device, from the profile of its accelerator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from shunter.extensions.distributed.planning.demand import ModelDemand
from shunter.extensions.distributed.planning.machine import Machine
from shunter.hardware.cost.step_model import StepModel, row_seconds, scaled_seconds
from shunter.hardware.types import HardwareProfile, Placement

ROUNDS = 4  # of the samples of each device


@dataclass(frozen=True)
class RowCosts:
    """Costs of looking up and updating rows on a device, without effects of other tables.

    Attributes:
        bag_seconds: Seconds to pool a bag, in lookup and update.
        lookup_seconds: Seconds for each id.
        cached_byte_seconds: Seconds for each byte of a row from the caches.
        byte_seconds: Seconds for each byte of a row from memory.
        copy_bytes_per_second: Rate of operations on whole tables.
    """

    bag_seconds: float
    lookup_seconds: float
    cached_byte_seconds: float
    byte_seconds: float
    copy_bytes_per_second: float

    @classmethod
    def of(cls, profile: HardwareProfile, share: float, row_bytes: float) -> Self:
        """Return the costs for a share of a profile's cores and a row width."""
        copy = profile.copy_bytes_per_second.value * min(1.0, 2 * share)
        if profile.step_costs:
            cores = profile.rated_cores if profile.accelerator.kind == "cpu" else 1

            def at_share(name: str) -> float:
                costs = [(one.threads / cores, getattr(one, name)) for one in profile.step_costs]
                return scaled_seconds(costs, max(share, min(of for of, _ in costs)))

            crowd = max(1.0, min(one.threads for one in profile.step_costs) / cores / share)
            factor = crowd * (at_share("memory_factor") or 1.0)
            return cls(
                bag_seconds=factor * at_share("bag_seconds"),
                lookup_seconds=factor * at_share("lookup_seconds"),
                cached_byte_seconds=factor * at_share("cached_byte_seconds"),
                byte_seconds=factor * at_share("byte_seconds"),
                copy_bytes_per_second=copy,
            )
        gather = profile.gather_bytes_per_second.value * share
        lookup = row_seconds(profile.gather_curve, row_bytes)
        update = row_seconds(profile.scatter_curve, row_bytes)
        each = (lookup / share if lookup else row_bytes / gather) + (
            update / share if update else 2 * row_bytes / gather
        )
        return cls(0.0, 0.0, each / row_bytes, each / row_bytes, copy)


def dense_seconds(machine: Machine, demand: ModelDemand, samples: Sequence[float]) -> list[float]:
    """Return the seconds of the dense layers on each device: forward, backward and update for its own samples."""
    alone = demand.workload.model_copy(update={"lookups_per_sample": 0.0, "tables": 0, "input_bytes_per_sample": 0.0})
    models: dict[int, StepModel] = {}
    seconds = []
    for device, own in zip(machine.devices, samples, strict=True):
        profile = device.profile
        model = models.setdefault(id(profile), StepModel(profile))
        threads = max(1, round(device.share * profile.rated_cores)) if profile.accelerator.kind == "cpu" else 1
        placement = Placement(
            accelerator=profile.accelerator.name, threads=threads, precision="fp32", batch_size=max(1, math.ceil(own))
        )
        parts = model.parts(alone, placement)
        crowd = max(1.0, threads / (device.share * profile.rated_cores)) if device.share < 1 else 1.0
        seconds.append((parts.dense + parts.overhead) * crowd)
    return seconds


def samples_by_rate(machine: Machine, demand: ModelDemand, batch_size: int) -> tuple[int, ...] | None:
    """Return the samples of each device, in proportion to its rate of computing the layers; only simulated.

    `shunter train` gives every process an equal part, as TorchRec's row-wise exchanges require.
    The constant time of a step (dispatch of operators) makes a small part slower. The rates are therefore computed
    again for the resulting parts. None is returned if all devices are equal, or if a device would get no sample.
    """
    count = len(machine.devices)
    kinds = {(device.profile.accelerator.name, device.share) for device in machine.devices}
    if len(kinds) == 1 or batch_size < count:
        return None
    samples = [batch_size / count] * count
    for _ in range(ROUNDS):
        seconds = dense_seconds(machine, demand, samples)
        rates = [own / taken for own, taken in zip(samples, seconds, strict=True)]
        samples = [batch_size * rate / sum(rates) for rate in rates]
    # Round to whole numbers with the same sum, by the largest remainders.
    whole = [int(one) for one in samples]
    by_rest = sorted(range(count), key=lambda place: (whole[place] - samples[place], place))
    for place in by_rest[: batch_size - sum(whole)]:
        whole[place] += 1
    return tuple(whole) if min(whole) > 0 else None
