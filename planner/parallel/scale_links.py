"""What the ways of `shunter.planner.parallel.scale` send over the links within a host and between hosts."""

from dataclasses import dataclass

from shunter.hardware.cost.step_model import message_share
from shunter.planner.parallel.machine import Channel

MESSAGE_SECONDS = 10e-6  # to start a message to another device or host; assumed
FORWARD, BACKWARD = 0.3, 0.6  # of the layers' seconds; the rest is the optimiser's


@dataclass(frozen=True)
class Links:
    """Links of a device: channel within its host and share of the host's network, with device counts."""

    within: Channel
    across_bytes_per_second: float
    hosts: int
    per_host: int

    @property
    def devices(self) -> int:
        """Devices of all hosts."""
        return self.hosts * self.per_host

    def crossing(self, data: float) -> float:
        """Return the bytes that leave the host, of data divided evenly among all devices."""
        return data * (self.hosts - 1) / self.hosts

    def flat(self, data: float) -> float:
        """One all-to-all; both links are busy at the same time."""
        across = self.crossing(data) / self.across_bytes_per_second
        within = data * (self.per_host - 1) / self.devices / self.within.bytes_per_second
        messages = (self.devices - self.per_host) if self.hosts > 1 else 0
        return max(across + messages * MESSAGE_SECONDS, within + (self.per_host - 1) * MESSAGE_SECONDS)

    def by_host(self, data: float, compression: float) -> float:
        """All vectors within the host, then those of the peers, compressed."""
        within = data * (self.per_host - 1) / self.per_host / self.within.bytes_per_second
        across = self.crossing(data) / compression / self.across_bytes_per_second
        return within + across + (self.per_host - 1 + self.hosts - 1) * MESSAGE_SECONDS

    def all_reduce(self, data: float) -> float:
        """Within the host, and each device's part across hosts."""
        within = message_share("all_reduce", self.per_host) * data / self.within.bytes_per_second
        started = 2 * (self.per_host - 1) * MESSAGE_SECONDS
        return (within if self.per_host > 1 else 0.0) + started + self.all_reduce_parts(data)

    def all_reduce_parts(self, data: float) -> float:
        """Each device's part of what a host has, added up over the hosts."""
        if self.hosts == 1:
            return 0.0
        started = 2 * (self.hosts - 1) * MESSAGE_SECONDS
        return message_share("all_reduce", self.hosts) * data / self.per_host / self.across_bytes_per_second + started

    def gather_all(self, data: float) -> float:
        """An all-gather over all devices, in as many rings as a host has devices."""
        slowest = min(self.within.bytes_per_second, self.across_bytes_per_second * self.per_host)
        rate = slowest if self.hosts > 1 else self.within.bytes_per_second
        return data * (self.devices - 1) / self.devices / rate + (self.devices - 1) * MESSAGE_SECONDS

    def gather_in_host(self, data: float) -> float:
        """An all-gather within each host."""
        share = (self.per_host - 1) / self.per_host
        return data * share / self.within.bytes_per_second + (self.per_host - 1) * MESSAGE_SECONDS

    def fully_sharded(self, dense: float, weights: float, pieces: int) -> float:
        """Layers whose weights lie divided over all devices, piece by piece: the next is gathered beside computing.

        Gradients are scattered as weights are gathered, by the same links.

        Args:
            dense: Seconds of computing.
            weights: Their bytes.
            pieces: Layers that are gathered one at a time, alike.
        """
        gathered = self.gather_all(weights / pieces)
        return _in_pieces(dense, pieces, gathered, 2 * gathered, gathered)

    def hybrid_sharded(self, dense: float, weights: float, pieces: int) -> float:
        """Weights divided within each host: parts of gradients are added up over hosts beside the next piece."""
        gathered = self.gather_in_host(weights / pieces)
        summed = self.all_reduce_parts(weights / pieces)
        return _in_pieces(dense, pieces, gathered, max(2 * gathered, summed), gathered + summed)


def _in_pieces(dense: float, pieces: int, first: float, beside: float, last: float) -> float:
    """Forward and backward pass over the pieces.

    Args:
        dense: Seconds of computing, with the optimiser.
        pieces: How many there are.
        first: To gather a piece, which nothing hides for the first one of a pass.
        beside: What the links do beside the computing of a piece of the backward pass.
        last: What they do after the last.
    """
    ahead, back = FORWARD * dense / pieces, BACKWARD * dense / pieces
    forward = first + (pieces - 1) * max(ahead, first) + ahead
    backward = first + (pieces - 1) * max(back, beside) + back + last
    return forward + backward + (1 - FORWARD - BACKWARD) * dense
