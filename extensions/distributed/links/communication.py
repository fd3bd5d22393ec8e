"""Communication costs of collective operations: an analytical network model, and costs fitted to measurements.

The network model between machines follows Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
Operations in MPICH", IJHPCA 19(1), 2005, section 3. A message takes latency + bytes / bandwidth, and the collectives
use ring algorithms. Measured costs are fitted by a straight line for each collective, and by a model over many jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from shunter.errors import HardwareError
from shunter.frozen import Frozen
from shunter.hardware.types import Collective, CollectiveCost, CollectivePoint

# Of n processes in a ring or pairwise exchange: the bytes that each sends, as a multiple of its message, and messages.
WIRE_SHARES = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "all_gather": lambda n: float(n - 1),
    "broadcast": lambda n: 1.0 if n > 1 else 0.0,
}
MESSAGES = {
    **dict.fromkeys(("reduce_scatter", "all_to_all", "all_gather"), lambda n: n - 1),
    "all_reduce": lambda n: 2 * (n - 1),
    "broadcast": lambda n: 1 if n > 1 else 0,
}


@dataclass(frozen=True, kw_only=True)
class Link:
    """Network link of each machine to the other machines.

    Attributes:
        bytes_per_second: Bandwidth of a machine's link, shared by its processes.
        latency_seconds: Latency of one message.
        machines: Machines over which the processes are spread evenly.
    """

    bytes_per_second: float
    latency_seconds: float
    machines: int = 2


def wire_bytes(operation: str, message_bytes: float, processes: int) -> float:
    """Return the bytes that each process sends in a collective operation.

    Args:
        operation: Key of `WIRE_SHARES`.
        message_bytes: Bytes that each process contributes.
        processes: Number of processes, on all machines.
    """
    return message_bytes * WIRE_SHARES[operation](processes)


def transfer_seconds(operation: str, message_bytes: float, processes: int, link: Link) -> float:
    """Return the seconds that a collective operation spends on the links between machines.

    A ring crosses a machine's link once, independent of the number of processes in the machine. In an all-to-all, all
    processes of a machine send their messages to the processes of the other machines.

    Args:
        operation: Key of `WIRE_SHARES`.
        message_bytes: Bytes that each process contributes.
        processes: Number of processes, on all machines.
        link: Link of each machine.
    """
    machines = min(link.machines, processes)
    if machines < 2:
        return 0.0
    if operation == "all_to_all":
        local = processes // machines
        crossing = local * message_bytes * (processes - local) / processes
    else:
        crossing = wire_bytes(operation, message_bytes, processes)
    return crossing / link.bytes_per_second + MESSAGES[operation](processes) * link.latency_seconds


LEAST_R2 = 0.8
FEWEST_MODELS = 4
HUBER_ERROR, HUBER_ROUNDS = 0.2, 20


def fit_collective(
    operation: Collective, processes: int, link: str, points: Sequence[CollectivePoint]
) -> CollectiveCost:
    """Fit non-negative latency and bandwidth to the median times of messages of several sizes.

    Non-negative least squares minimises relative errors, so that microseconds of small messages count as much as
    milliseconds of large messages. Huber weights keep one disturbed size from bending the line. R2 refers to the
    unscaled seconds.

    Args:
        operation: Operation that was timed.
        processes: Number of processes.
        link: Description of the link, such as `gloo over loopback`.
        points: Times of at least three sizes.

    Raises:
        HardwareError: the times do not grow with the size, so that no bandwidth can be fitted.
    """
    assert len(points) >= 3, "a line needs at least three points"
    sizes = np.array([point.message_bytes for point in points], dtype=float)
    seconds = np.array([point.seconds.value for point in points])
    latency, per_byte = _robust_line(sizes, seconds)
    if per_byte <= 0:
        raise HardwareError(
            f"The times of {operation} over {link} do not grow with the size of the message, so the "
            "bandwidth cannot be measured: repeat the measurement when the machine is idle."
        )
    return CollectiveCost(
        operation=operation,
        processes=processes,
        link=link,
        latency_seconds=latency,
        bytes_per_second=1 / per_byte,
        r2=_r2(seconds, latency + per_byte * sizes),
        points=tuple(points),
    )


def _robust_line(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Fit a non-negative intercept and slope; points with a relative error above `HUBER_ERROR` get less weight."""
    from scipy.optimize import nnls

    design, weights = np.column_stack([1 / seconds, sizes / seconds]), np.ones(len(sizes))
    line = np.zeros(2)
    for _ in range(HUBER_ROUNDS):
        root = np.sqrt(weights)
        line, _ = nnls(design * root[:, np.newaxis], root)
        weights = np.minimum(1.0, HUBER_ERROR / np.maximum(np.abs(design @ line - 1), 1e-12))
    return float(line[0]), float(line[1])


class CommunicationSample(Frozen):
    """Measured seconds that one training job loses to communication in a step."""

    model: str
    buckets: int
    allreduce_bytes: float
    alltoall_bytes: float
    processes: int
    bytes_per_second: float
    seconds: float


class CommunicationModel(Frozen):
    """Model of communication seconds per step, for training jobs and links without measurements.

        a buckets + beta allreduce bytes 2 (g - 1) / g / bandwidth + gamma all-to-all bytes (g - 1) / g / bandwidth

    After Sharma et al., "Stash: A Comprehensive Stall-Centric Characterization of Public Cloud VMs for Distributed Deep
    Learning", ICDCS 2023, which explains stalls by the number of layers and of gradients; the term of the all-to-all
    is added for embeddings. A bucket is one collective operation of the step, and g the number of processes.
    """

    bucket_seconds: float
    allreduce_factor: float
    alltoall_factor: float
    r2: float
    samples: int

    @classmethod
    def fit(cls, samples: Sequence[CommunicationSample]) -> Self:
        """Fit the three non-negative factors by least squares.

        Raises:
            HardwareError: fewer than four models were measured, or R2 is below 0.8.
        """
        from scipy.optimize import nnls

        models = len({sample.model for sample in samples})
        if models < FEWEST_MODELS:
            raise HardwareError(
                f"The communication model is fitted to at least {FEWEST_MODELS} measured models, but there "
                f"are only {models}: measure more models."
            )
        design = np.array(
            [
                (
                    float(one.buckets),
                    wire_bytes("all_reduce", one.allreduce_bytes, one.processes) / one.bytes_per_second,
                    wire_bytes("all_to_all", one.alltoall_bytes, one.processes) / one.bytes_per_second,
                )
                for one in samples
            ]
        )
        seconds = np.array([sample.seconds for sample in samples])
        scale = np.where(design.max(axis=0) > 0, design.max(axis=0), 1.0)  # columns of like size, for the numerics
        factors, _ = nnls(design / scale, seconds)
        r2 = _r2(seconds, design / scale @ factors)
        if not r2 >= LEAST_R2:
            raise HardwareError(
                f"The communication model explains {max(r2, 0.0):.0%} of the variance between {models} "
                f"measured models, less than {LEAST_R2:.0%}, and is not used: measure again when the "
                "machine is idle."
            )
        a, beta, gamma = factors / scale
        return cls(
            bucket_seconds=float(a),
            allreduce_factor=float(beta),
            alltoall_factor=float(gamma),
            r2=r2,
            samples=len(samples),
        )


def _r2(measured: np.ndarray, fitted: np.ndarray) -> float:
    spread = float(((measured - measured.mean()) ** 2).sum())
    return 1.0 - float(((measured - fitted) ** 2).sum()) / spread if spread > 0 else 0.0
