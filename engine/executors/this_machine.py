"""Compute target of this machine."""

from collections.abc import Callable
from pathlib import Path

from shunter.engine.checkpoint.storage import holds_sharded_checkpoint
from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.executors.role import EXECUTORS, Executor
from shunter.errors import RequestError
from shunter.hardware.devices.discovery import usable_cores
from shunter.hardware.types import Placement


class ThisMachine:
    """Compute target of this machine; a `shunter.engine.executors.role.ComputeTarget`.

    Args:
        group_of: Makes the executor of a placement with several processes; None: the one registered in `EXECUTORS`.
    """

    def __init__(self, group_of: Callable[[Placement], Executor] | None = None) -> None:
        self._group_of = group_of

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        """Return a process group if several processes are requested or began the training, else this process."""
        is_begun_by_many = checkpoints is not None and holds_sharded_checkpoint(checkpoints)
        if placement.processes == 1 and not is_begun_by_many:
            return InProcessExecutor(placement)
        group_of = self._group_of or EXECUTORS.load("process_group")
        return group_of(placement)

    def executors(self, placement: Placement, count: int) -> list[Executor]:
        """Return `count` executors in separate processes; one executor in this process (or a process group) for 1.

        On a CPU the processes share the cores, each with at most the placement's threads; GPUs are not shared.

        Raises:
            RequestError: There are fewer GPUs of the chosen model.
        """
        if count == 1:
            return [InProcessExecutor(placement) if placement.processes == 1 else self.executor(placement)]
        from shunter.engine.executors.separate_process import SubprocessExecutor

        cores = max(1, usable_cores() // count)
        if placement.device == "cpu":
            threads = min(placement.threads, max(placement.threads // count, cores))
            shared = placement.model_copy(update={"threads": threads})
            return [SubprocessExecutor(shared, cores=cores) for _ in range(count)]
        _check_gpus(placement.device, count)
        names = [f"cuda:{index}" for index in range(count)]  # the GPUs that `shunter.hardware.reservation` reserves
        return [SubprocessExecutor(placement.model_copy(update={"accelerator": name}), cores=cores) for name in names]


def _check_gpus(device: str, count: int) -> None:
    """Raise if trials would share a GPU, or run on a GPU of another model, which would make times incomparable."""
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    model = torch.cuda.get_device_name(device)
    alike = next((index for index, name in enumerate(names) if name != model), len(names))
    if count > alike:
        raise RequestError(
            f"Each of the {count} parallel trials needs a GPU. Of the GPUs {', '.join(names)}, only the "
            f"first {alike} are of the chosen model {model}: lower --parallel-trials to {max(1, alike)}."
        )
