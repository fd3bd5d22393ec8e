"""What single operators of a training step take here, forward and backward, each measured by itself.

A step of them all is not quite their sum: within it the caches hold other things, and what starts a step and updates
the layers comes on top. So the figures are good for comparing operators, and a step predicted from them needs one that
was measured beside it.
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
    """What some operators take.

    Attributes:
        seconds: Measured time of each.
        watts: Mean power meanwhile, measured or estimated as its source says; None where nothing can tell it.
    """

    seconds: "dict[Key, Quantity]"
    watts: "Quantity | None"


def measure_operators(
    works: Mapping[Key, Callable[[], object]], accelerator: str, *, thread_count: int = 1, seconds_each: float = 0.02
) -> OperatorTimes[Key]:
    """Repeat each piece of work and take its median time, and the power meanwhile.

    Args:
        works: Work to time, such as `linear_work`.
        accelerator: Torch device on which they run.
        thread_count: Intra-operator threads.
        seconds_each: Time after which a measurement stops repeating; each repeats at least three times.
    """
    # Imported here, so that the engine can be imported where torch and numpy are all there is.
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
    """A linear layer with its ReLU, forward and backward.

    Args:
        batch_size: Samples of a batch.
        inputs: Width of the input.
        outputs: Width of the output.
        device: Device of the tensors.
        is_first: Whether nothing below it learns, so that the gradient of its input is not computed.
    """
    layer = nn.Linear(inputs, outputs, device=device)
    return module_work(nn.Sequential(layer, nn.ReLU()), (batch_size, inputs), device, is_first=is_first)


def module_work(
    module: nn.Module, shape: tuple[int, ...], device: torch.device, *, is_first: bool = False
) -> Callable[[], object]:
    """Any module over one tensor of a shape, forward and backward; see `linear_work`."""
    sample = torch.randn(shape, device=device, requires_grad=not is_first)
    gradient = torch.ones_like(module(sample))
    wanted = [*([] if is_first else [sample]), *module.parameters()]

    def work() -> object:
        return torch.autograd.grad(module(sample), wanted, gradient, allow_unused=True)

    return work
