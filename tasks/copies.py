"""Copies of a run's checkpoints at another address: looked at before it begins, removed when it has ended."""

from shunter.engine.checkpoint.remote import check_address, remove_copies
from shunter.engine.data.dataset import Dataset
from shunter.requests import TrainRequest
from shunter.tasks.run_state import copies_address


def check_copies(request: TrainRequest) -> None:
    """Make sure that copies can be kept, where some are asked for.

    Raises:
        RequestError: The address cannot be written to.
    """
    if request.checkpoints.checkpoint_copy is not None:
        check_address(request.checkpoints.checkpoint_copy)


def forget_copies(request: TrainRequest, dataset: Dataset) -> None:
    """Remove the copies of a run whose result is kept."""
    if (address := copies_address(request, dataset)) is not None:
        remove_copies(address)
