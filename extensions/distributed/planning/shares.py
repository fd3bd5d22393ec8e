"""Parts of a batch for devices of unequal speed, so that all finish their layers at the same time; only simulated.

`shunter train` gives every process an equal part, as TorchRec's row-wise exchanges require.
"""

from shunter.extensions.distributed.planning.demand import ModelDemand
from shunter.extensions.distributed.planning.device_costs import dense_seconds
from shunter.extensions.distributed.planning.machine import Machine

ROUNDS = 4


def samples_by_rate(machine: Machine, demand: ModelDemand, batch_size: int) -> tuple[int, ...] | None:
    """Return the samples of each device, in proportion to its rate of computing the layers.

    The constant time of a step (dispatch of operators) makes a small part slower. The rates are therefore computed
    again for the resulting parts.

    Returns:
        None where all devices are alike, or one would get no sample.
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
    whole = _rounded(samples, batch_size)
    return whole if min(whole) > 0 else None


def _rounded(samples: list[float], total: int) -> tuple[int, ...]:
    """Round to whole numbers with the same sum, by the largest remainders."""
    whole = [int(one) for one in samples]
    by_rest = sorted(range(len(samples)), key=lambda place: (whole[place] - samples[place], place))
    for place in by_rest[: total - sum(whole)]:
        whole[place] += 1
    return tuple(whole)
