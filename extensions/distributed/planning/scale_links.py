"""Messages of the ways in `planning.scale`, over the links within a host and between hosts."""

from dataclasses import dataclass

from shunter.extensions.distributed.planning.machine import Channel
from shunter.hardware.cost.step_model import message_share

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
        """Return the seconds of one all-to-all; both links are busy at the same time."""
        across = self.crossing(data) / self.across_bytes_per_second
        within = data * (self.per_host - 1) / self.devices / self.within.bytes_per_second
        messages = (self.devices - self.per_host) if self.hosts > 1 else 0
        return max(across + messages * MESSAGE_SECONDS, within + (self.per_host - 1) * MESSAGE_SECONDS)

    def by_host(self, data: float, compression: float) -> float:
        """Return the seconds to exchange all vectors within the host, then compressed ones between peers."""
        within = data * (self.per_host - 1) / self.per_host / self.within.bytes_per_second
        across = self.crossing(data) / compression / self.across_bytes_per_second
        return within + across + (self.per_host - 1 + self.hosts - 1) * MESSAGE_SECONDS

    def all_reduce(self, data: float) -> float:
        """Within the host, and each device's part across hosts."""
        within = message_share("all_reduce", self.per_host) * data / self.within.bytes_per_second
        started = 2 * (self.per_host - 1) * MESSAGE_SECONDS
        return (within if self.per_host > 1 else 0.0) + started + self.all_reduce_parts(data)

    def all_reduce_parts(self, data: float) -> float:
        """Return the seconds of an all-reduce over the hosts, for each device's part of a host's data."""
        if self.hosts == 1:
            return 0.0
        started = 2 * (self.hosts - 1) * MESSAGE_SECONDS
        return message_share("all_reduce", self.hosts) * data / self.per_host / self.across_bytes_per_second + started

    def gather_all(self, data: float) -> float:
        """Return the seconds of an all-gather over all devices, with one ring for each device of a host."""
        slowest = min(self.within.bytes_per_second, self.across_bytes_per_second * self.per_host)
        rate = slowest if self.hosts > 1 else self.within.bytes_per_second
        return data * (self.devices - 1) / self.devices / rate + (self.devices - 1) * MESSAGE_SECONDS

    def gather_in_host(self, data: float) -> float:
        """An all-gather within each host."""
        share = (self.per_host - 1) / self.per_host
        return data * share / self.within.bytes_per_second + (self.per_host - 1) * MESSAGE_SECONDS

    def fully_sharded(self, dense: float, weights: float, pieces: int) -> float:
        """Return the seconds of layers sharded over all devices; the next piece is gathered during computation.

        Gradients are scattered over the same links.

        Args:
            dense: Seconds of computing.
            weights: Bytes of the layers' weights.
            pieces: Number of equal pieces that are gathered one at a time.
        """
        gathered = self.gather_all(weights / pieces)
        return _in_pieces(dense, pieces, gathered, 2 * gathered, gathered)

    def hybrid_sharded(self, dense: float, weights: float, pieces: int) -> float:
        """Return the seconds of weights sharded within each host; gradients are reduced during the next piece."""
        gathered = self.gather_in_host(weights / pieces)
        summed = self.all_reduce_parts(weights / pieces)
        return _in_pieces(dense, pieces, gathered, max(2 * gathered, summed), gathered + summed)


def _in_pieces(dense: float, pieces: int, first: float, beside: float, last: float) -> float:
    """Seconds of the forward and backward pass over the pieces.

    Args:
        dense: Seconds of computing, with the optimiser.
        pieces: Number of pieces.
        first: Seconds to gather a piece, which are not hidden for the first piece of a pass.
        beside: Seconds of the messages during the computation of a piece of the backward pass.
        last: Seconds of the messages after the last piece.
    """
    ahead, back = FORWARD * dense / pieces, BACKWARD * dense / pieces
    forward = first + (pieces - 1) * max(ahead, first) + ahead
    backward = first + (pieces - 1) * max(back, beside) + back + last
    return forward + backward + (1 - FORWARD - BACKWARD) * dense
