"""Gradients of the dense layers, averaged over the processes during the backward pass."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch import distributed as dist

# Of a bucket: so that much is on its way before the backward pass ends, in messages that cost more to send than to
# begin. PyTorch's own data parallelism takes 25 MB, for links that are begun more slowly than memory is.
BUCKET_BYTES = 4 << 20


class GradientBuckets:
    """Buckets of gradients, beginning with the last layers; each is all-reduced when its gradients are complete.

    The backward pass computes gradients in the same order in every process, and buckets are sent in a fixed order.
    Messages and additions are therefore deterministic. A bucket with a layer that a step does not use is sent at the
    end of the step.

    Args:
        parameters: The parameters, in the order of the forward pass.
        bucket_bytes: Minimum size of all buckets except the last.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], processes: int, bucket_bytes: int = BUCKET_BYTES) -> None:
        self._processes = processes
        self._buckets = _buckets(list(parameters)[::-1], bucket_bytes)
        self._waits_for: list[int] = []
        self._ahead: list[Tensor] = []
        self._sent: list[tuple[Sequence[Tensor], Tensor, dist.Work]] = []
        self._next = len(self._buckets)
        for number, bucket in enumerate(self._buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda _, number=number: self._came(number))

    def begin(self, also: Sequence[Tensor]) -> None:
        """Prepare the buckets, before the backward pass; tensors in `also` are averaged in place with the first one."""
        self._waits_for = [len(bucket) for bucket in self._buckets]
        self._ahead, self._sent, self._next = list(also), [], 0

    def finish(self) -> None:
        """Wait for all buckets, after the backward pass; all gradients are then means."""
        while self._next < len(self._buckets):
            self._send()
        if self._ahead:
            self._send_together([])
        for tensors, flat, work in self._sent:
            work.wait()
            means = flat.div_(self._processes).split([tensor.numel() for tensor in tensors])
            for tensor, mean in zip(tensors, means, strict=True):
                tensor.copy_(mean.view_as(tensor))
        self._sent = []

    def _came(self, bucket: int) -> None:
        if self._next == len(self._buckets):
            return  # averages were not requested for this backward pass
        self._waits_for[bucket] -= 1
        while self._next < len(self._buckets) and not self._waits_for[self._next]:
            self._send()

    def _send(self) -> None:
        bucket, self._next = self._buckets[self._next], self._next + 1
        self._send_together([parameter.grad for parameter in bucket if parameter.grad is not None])

    @torch.no_grad()
    def _send_together(self, gradients: Sequence[Tensor]) -> None:
        tensors, self._ahead = [*self._ahead, *gradients], []
        if not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        work = dist.all_reduce(flat, async_op=True)
        assert work is not None, "all processes are of the group"
        self._sent.append((tensors, flat, work))


def _buckets(parameters: Sequence[nn.Parameter], least_bytes: int) -> list[list[nn.Parameter]]:
    buckets: list[list[nn.Parameter]] = []
    size = least_bytes
    for parameter in parameters:
        if size >= least_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += parameter.nbytes
    return buckets
