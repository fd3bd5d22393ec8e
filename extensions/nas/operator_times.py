"""Times of single operators of a training step, forward and backward, each measured separately.

The time of a step is not quite their sum: caches hold other data within a step, and launching the step and updating
the layers take additional time. The times are thus good for comparisons of operators. A prediction of a step's time
also needs one measured step.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import nn

from shunter.hardware.probes.timing import repeat, threads

if TYPE_CHECKING:
    from shunter.hardware.types import Quantity

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class OperatorTimes(Generic[Key]):
    """Times of operators.

    Attributes:
        seconds: Measured seconds of each operator.
        watts: Mean power during the measurement, measured or estimated as given by its source; None if unknown.
    """

    seconds: "dict[Key, Quantity]"
    watts: "Quantity | None"


def measure_operators(
    works: Mapping[Key, Callable[[], object]], accelerator: str, *, thread_count: int = 1, seconds_each: float = 0.02
) -> OperatorTimes[Key]:
    """Repeat each piece of work; return its median time, and the power.

    Args:
        works: Work to time, such as `linear_work`.
        accelerator: Torch device of the work.
        thread_count: Number of intra-operator threads.
        seconds_each: Seconds after which a measurement stops; each work is repeated at least three times.
    """
    # Imported here, so that this module needs only torch and numpy at import.
    from shunter.hardware.meters.meter import measure_energy
    from shunter.hardware.probes.quantities import measured_seconds
    from shunter.hardware.types import Quantity

    device = torch.device(accelerator)
    with threads(thread_count), measure_energy(accelerator) as meter:
        durations = {key: repeat(work, device, seconds_each) for key, work in works.items()}
    reading = meter.reading
    watts = None
    if reading.mean_watts is not None and reading.method != "unavailable":
        watts = Quantity(value=reading.mean_watts, source=reading.method)
    return OperatorTimes(seconds={key: measured_seconds(times) for key, times in durations.items()}, watts=watts)


def linear_work(
    batch_size: int, inputs: int, outputs: int, device: torch.device, *, is_first: bool = False
) -> Callable[[], object]:
    """Return a linear layer with its ReLU, forward and backward.

    Args:
        batch_size: Samples of a batch.
        inputs: Width of the input.
        outputs: Width of the output.
        device: Device of the tensors.
        is_first: If True, the layer is the first one, and the gradient of its input is not computed.
    """
    layer = nn.Linear(inputs, outputs, device=device)
    return module_work(nn.Sequential(layer, nn.ReLU()), (batch_size, inputs), device, is_first=is_first)


def module_work(
    module: nn.Module, shape: tuple[int, ...], device: torch.device, *, is_first: bool = False
) -> Callable[[], object]:
    """Return any module on one tensor of the given shape, forward and backward; see `linear_work`."""
    sample = torch.randn(shape, device=device, requires_grad=not is_first)
    gradient = torch.ones_like(module(sample))
    wanted = [*([] if is_first else [sample]), *module.parameters()]

    def work() -> object:
        return torch.autograd.grad(module(sample), wanted, gradient, allow_unused=True)

    return work
