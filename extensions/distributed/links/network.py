"""Analytical network model: the time of a collective operation between machines.

After the cost model of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
IJHPCA 19(1), 2005, section 3: latency + bytes / bandwidth for each message, with ring algorithms.
"""

from dataclasses import dataclass

# Bytes that each of n processes sends, as a multiple of its message, in a ring or pairwise exchange.
WIRE_SHARES = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "all_gather": lambda n: float(n - 1),
    "broadcast": lambda n: 1.0 if n > 1 else 0.0,
}
MESSAGES = {
    "all_reduce": lambda n: 2 * (n - 1),
    "reduce_scatter": lambda n: n - 1,
    "all_to_all": lambda n: n - 1,
    "all_gather": lambda n: n - 1,
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
        message_bytes: Bytes that each process brings in.
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
