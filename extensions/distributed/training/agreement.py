"""Actions of all processes of a group; a failure in one process is raised in all."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import distributed as dist

from shunter.errors import CheckpointError, ShunterError


def from_all(value: Any, group: dist.ProcessGroup | None = None) -> Sequence[Any]:
    """Gather a small, picklable value from every process of a group; return the values in the order of the ranks."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value, group=group)
    return values


def all_do(work: Callable[[], None], group: dist.ProcessGroup | None = None) -> None:
    """Run a function in every process, and wait until all have run it.

    Raises:
        ShunterError: The function failed in a process; the error of the first failed process is raised in all.
    """
    problem = None
    try:
        work()
    except ShunterError as error:
        problem = error
    except OSError as error:
        problem = CheckpointError(f"The checkpoint cannot be written ({error}): free the disk, then train again.")
    problems = [error for error in from_all(problem, group) if error is not None]
    if problems:
        raise problems[0]
