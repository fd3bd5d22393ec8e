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
    """Interface to the files of a training run's checkpoints in a folder."""

    def lists(self, names: Iterable[str]) -> list[str]:
        """Select from `names` the manifests, newest first; each manifest lists the files of one checkpoint."""
        ...

    def files(self, name: str, read: Callable[[str], bytes]) -> Mapping[str, str | None]:
        """Return the files that the manifest `name` lists, in transfer order, with sha256 or None.

        Raises:
            CheckpointError: The manifest is damaged.
        """
        ...

    def fetched(self, directory: Path, name: str) -> None:
        """Finish the download of a checkpoint into a folder; called after all its files have arrived."""


class CheckpointCopy(Protocol):
    """Interface of a remote copy of one training run's checkpoints."""

    @property
    def names_in_work(self) -> frozenset[str]:
        """Names of local files that are being uploaded, and must not be removed."""
        ...

    def fetch(self, directory: Path) -> bool:
        """Download the newest complete checkpoint; return True if there was one."""
        ...

    def follow(self, directory: Path, figures: CheckpointFigures) -> None:
        """Start to upload the newest checkpoint, unless an earlier upload is running."""

    def finish(self, directory: Path, figures: CheckpointFigures) -> None:
        """Upload the newest checkpoint, and wait for the upload."""

    def stop(self) -> None:
        """Stop uploading checkpoints."""
