"""Copies of a training run's checkpoints at another address."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from shunter.engine.checkpoint.checkpoint_settings import CheckpointFigures
from shunter.registry import Entry, Registry

# `remote` is a class of the address, the identity, the layout, the number of states and the throttle; `check` a
# function that raises for an address that cannot be used, and `remove` one that removes all copies at an address.
CHECKPOINT_COPIES = Registry(
    "copy of checkpoints",
    {
        "remote": Entry(
            target="shunter.extensions.incremental_checkpoints.remote_copy:RemoteCopy",
            capabilities={
                "check": "shunter.extensions.incremental_checkpoints.remote_copy:check_address",
                "remove": "shunter.extensions.incremental_checkpoints.remote_copy:remove_copies",
            },
        )
    },
    group="shunter.checkpoint_copies",
)


class Layout(Protocol):
    """Layout of the states of a training run in a folder."""

    def lists(self, names: Iterable[str]) -> list[str]:
        """Return the names that are lists of the files of a state, the newest first."""
        ...

    def files(self, name: str, read: Callable[[str], bytes]) -> Mapping[str, str | None]:
        """Return the files that a list names, in the order of the transfer, with their sha256 or None.

        Raises:
            CheckpointError: The list is damaged.
        """
        ...

    def fetched(self, directory: Path, name: str) -> None:
        """Finish the download of a state into a folder; called after all its files have arrived."""
        ...


class CheckpointCopy(Protocol):
    """Copy of one training run's checkpoints."""

    @property
    def names_in_work(self) -> frozenset[str]:
        """Names of local files that are being uploaded, and must not be removed."""
        ...

    def fetch(self, directory: Path) -> bool:
        """Download the newest complete state; return True if there was one."""
        ...

    def follow(self, directory: Path, figures: CheckpointFigures) -> None:
        """Start to upload the newest state, unless an earlier upload is running."""
        ...

    def finish(self, directory: Path, figures: CheckpointFigures) -> None:
        """Upload the newest state, and wait for it."""
        ...

    def stop(self) -> None:
        """Stop uploading."""
        ...
