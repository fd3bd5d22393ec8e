"""Dense layers divided over devices: their communication, and the share of the weights on each device.

A layer of I inputs and O outputs, under FlexFlow's dimensions (SOAP, MLSys 2019, section 4):

    output_split         each device computes a block of outputs of all samples: inputs are gathered, outputs sent back
    input_split          each device multiplies a block of inputs, which are sent to it; partial sums are reduced
    host_output_split    the same within each host; hosts have copies, whose gradients are added up over the hosts
    host_input_split
    sharded              weights are sharded over all devices, which gather them for each pass (FSDP)
    hybrid_sharded       the same within each host; gradients are added up over the hosts (HSDP of DHEN)

The last two kinds only save memory: they send more data than copies on every device. Every
device computes the undivided layers for its own samples. All figures are simulated.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shunter.extensions.distributed.planning.demand import FLOAT_BYTES, LayerDemand
from shunter.extensions.distributed.planning.plan import SplitKind

WITHIN_HOST: tuple[SplitKind, ...] = ("host_output_split", "host_input_split", "hybrid_sharded")
SHARDED: tuple[SplitKind, ...] = ("sharded", "hybrid_sharded")
PASSES_GATHERED = 3  # weights for the forward and for the backward pass, and their gradients


class SplitLayer(NamedTuple):
    """Layer with the way it is divided."""

    layer: LayerDemand
    kind: SplitKind


class Traffic(NamedTuple):
    """Communication of divided layers in a step.

    Attributes:
        messages: Number of collective operations.
        within_bytes: Bytes that a device sends to other devices of its host.
        across_bytes: Bytes that a host sends to other hosts.
    """

    messages: int
    within_bytes: float
    across_bytes: float


def traffic_of(splits: Sequence[SplitLayer], samples: float, per_host: int, hosts: int) -> Traffic:
    """Return the communication of divided layers, without all-reduced gradients across hosts."""
    messages, within, across = 0, 0.0, 0.0
    for layer, kind in splits:
        parts = per_host if kind in WITHIN_HOST else per_host * hosts
        if kind in SHARDED:
            messages += PASSES_GATHERED
            within += PASSES_GATHERED * layer.parameter_bytes * (per_host - 1) / per_host
            if kind == "sharded":
                across += PASSES_GATHERED * layer.parameter_bytes * (hosts - 1) / hosts
            continue
        whole, divided = layer.inputs, layer.outputs
        if kind in ("input_split", "host_input_split"):
            whole, divided = divided, whole
        to_all, to_each = 2 * samples * FLOAT_BYTES * whole, 2 * samples * FLOAT_BYTES * divided / parts
        messages += 4
        within += (to_all + to_each) * (per_host - 1)
        if kind not in WITHIN_HOST:  # common data reach a host once, and are distributed within it
            within += to_all * (per_host - 1) * (hosts - 1)
            across += (to_all + to_each * per_host) * per_host * (hosts - 1)
    return Traffic(messages, within, across)


def weights_share(kind: SplitKind, per_host: int, hosts: int) -> float:
    """Return the share of a divided layer's weights on each device."""
    return 1 / (per_host if kind in WITHIN_HOST else per_host * hosts)


def kinds_of(layer: LayerDemand, per_host: int, hosts: int) -> list[SplitKind]:
    """Return the ways in which the layer can be divided evenly."""
    ways: list[tuple[SplitKind, int, int]] = [  # and what has to be a multiple of how many
        ("output_split", layer.outputs, per_host * hosts),
        ("input_split", layer.inputs, per_host * hosts),
        ("sharded", 0, per_host * hosts),
    ]
    if hosts > 1:
        ways.append(("host_output_split", layer.outputs, per_host))
        ways.append(("host_input_split", layer.inputs, per_host))
        ways.append(("hybrid_sharded", 0, per_host))
    return [kind for kind, size, parts in ways if parts > 1 and size % parts == 0]
