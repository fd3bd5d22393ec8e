"""Remote copy of a training run's checkpoints at an address of `fsspec`, updated during training.

Each state is written to a local folder first. A separate thread then uploads the new files of the state, with the list
of files last, and removes remote files that no kept state needs. A slow or failing address never delays training:
states that are written during an upload are skipped, and a failed upload is retried with the next state.

A training run whose folder is empty, for instance on another machine, downloads the newest complete state. Its folder
below the address is named after a hash of its identity. Any number of training runs can therefore share an address.
"""

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from shunter.engine.checkpoint.background import BackgroundWriter, Throttle
from shunter.engine.checkpoint.checked_files import check_file
from shunter.engine.checkpoint.checkpoint_settings import CheckpointFigures
from shunter.engine.checkpoint.copies import Layout
from shunter.errors import CheckpointError, RequestError
from shunter.secrets import without_secrets

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 120.0  # wait at the end for a running upload, which may hang


class RemoteCopy:
    """Remote copy of one training run's checkpoints; a `shunter.engine.checkpoint.copies.CheckpointCopy`.

    Args:
        address: Address of the copies, for instance `s3://bucket/checkpoints`.
        identity: Properties that a checkpoint must share with the training run that resumes from it.
        layout: Layout of the local folder.
        generations: Number of states to keep at the address.
        throttle: Limit of the upload rate.
    """

    def __init__(
        self, address: str, identity: Mapping[str, Any], layout: Layout, generations: int, throttle: Throttle
    ) -> None:
        self._files, root = file_system(address)
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        self._root = f"{root.rstrip('/')}/{key}"
        self._address, self._layout, self._generations = address, layout, generations
        self._throttle = throttle
        self._writer = BackgroundWriter()
        self._in_work: frozenset[str] = frozenset()
        self._copied = ""  # name of the list of the newest uploaded state
        # Complete remote files, with their sha256. Any other remote file may be of an earlier attempt, or half written
        # when that attempt was killed.
        self._known: dict[str, str | None] = {}
        self._has_warned = self._is_over = False

    @property
    def names_in_work(self) -> frozenset[str]:
        """Names of local files that are being uploaded, and must not be removed."""
        return self._in_work if self._writer.is_busy else frozenset()

    def fetch(self, directory: Path) -> bool:
        """Download the newest complete checkpoint; return True if there was one.

        Raises:
            CheckpointError: The address cannot be read.
        """
        try:
            names = self._names()
        except Exception as error:  # each kind of address has errors of its own
            raise CheckpointError(
                f"The remote checkpoints at {without_secrets(self._address)} cannot be read "
                f"({_reason(error)}): check the address, its credentials and the network, or leave the "
                "address out."
            ) from error
        for name in self._layout.lists(names):
            try:
                self._fetch_state(directory, name)
            except Exception as error:
                log.warning(
                    "The checkpoint %s at %s is incomplete (%s): trying the previous checkpoint.",
                    name,
                    without_secrets(self._address),
                    _reason(error),
                )
                continue
            self._copied = name
            return True
        return False

    def follow(self, directory: Path, figures: CheckpointFigures) -> None:
        """Start to upload the newest checkpoint, unless an earlier upload is running.

        Args:
            directory: Local folder of the state.
            figures: Statistics of the checkpoints, to which the upload is added.
        """
        if self._writer.is_busy or self._is_over:
            return
        names = [path.relative_to(directory).as_posix() for path in directory.rglob("*.json")]
        name = next(iter(self._layout.lists(names)), "")
        if not name or name == self._copied:
            return
        try:
            wanted = self._layout.files(name, lambda one: (directory / one).read_bytes())
        except (CheckpointError, OSError):
            return
        self._in_work = frozenset({name, *wanted})

        def job() -> None:
            try:
                is_there = self._copy(directory, name, wanted)
            except Exception as error:
                figures.copies_failed += 1
                self._warn(error)
                return
            if is_there:
                self._copied, self._has_warned = name, False
                figures.copied += 1

        self._writer.start(job)

    def finish(self, directory: Path, figures: CheckpointFigures) -> None:
        """Wait until the newest checkpoint is uploaded, up to `LONGEST_WAIT_SECONDS` for each upload."""
        for _ in range(2):  # the running upload, then the state written during the upload
            if not self._writer.wait_at_most(LONGEST_WAIT_SECONDS):
                self._warn(TimeoutError(f"not complete after {LONGEST_WAIT_SECONDS:.0f} s"))
                return
            self.follow(directory, figures)
        self._writer.wait_at_most(LONGEST_WAIT_SECONDS)

    def stop(self) -> None:
        """Stop uploading: the training run has ended, and its result replaces its checkpoints."""
        self._is_over = True
        self._writer.wait_at_most(LONGEST_WAIT_SECONDS)

    def _copy(self, directory: Path, name: str, wanted: Mapping[str, str | None]) -> bool:
        """Upload the new files of a state, and remove files that no kept state needs; return False if stopped."""
        there = self._names()
        for one in (*wanted, name):
            if self._is_over:
                return False
            checksum = wanted.get(one)
            if one not in there or checksum is None or self._known.get(one) != checksum:
                remote = f"{self._root}/{one}"
                self._files.makedirs(remote.rpartition("/")[0], exist_ok=True)
                self._files.put_file(str(directory / one), remote)
                self._throttle.wrote((directory / one).stat().st_size)
                self._known[one] = checksum
        lists = self._layout.lists({*there, name})
        kept: set[str] = set()
        for one in lists[lists.index(name) :][: self._generations]:  # newer lists belong to an abandoned attempt
            with suppress(CheckpointError, FileNotFoundError):  # a state that cannot be resumed from
                kept |= {one, *self._layout.files(one, self._read)}
        for gone in there - kept:
            self._files.rm_file(f"{self._root}/{gone}")
        self._known = {one: checksum for one, checksum in self._known.items() if one in kept}
        return True

    def _fetch_state(self, directory: Path, name: str) -> None:
        wanted = self._layout.files(name, self._read)
        for one in wanted:
            _check_inside(one)
        with tempfile.TemporaryDirectory(prefix="fetched-", dir=directory.parent) as folder:
            for one, checksum in (*wanted.items(), (name, None)):
                path = Path(folder) / one
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(f"{self._root}/{one}", str(path))
                if checksum is not None:
                    check_file(path, checksum)
            its_own = name.partition("/")[0]  # the list completes the state, so it is moved last
            directory.mkdir(parents=True, exist_ok=True)
            for path in sorted(Path(folder).iterdir(), key=lambda path: path.name == its_own):
                if (directory / path.name).is_dir():
                    shutil.rmtree(directory / path.name)
                path.replace(directory / path.name)
        self._layout.fetched(directory, name)
        self._known |= wanted

    def _names(self) -> set[str]:
        if not self._files.exists(self._root):
            return set()
        root = self._files._strip_protocol(self._root)
        return {path.removeprefix(root).lstrip("/") for path in self._files.find(self._root)}

    def _read(self, name: str) -> bytes:
        return self._files.cat_file(f"{self._root}/{name}")

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            log.warning(
                "The checkpoint was not copied to %s (%s): it exists only locally. The next one will be tried.",
                without_secrets(self._address),
                _reason(error),
            )
        self._has_warned = True


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it.

    Raises:
        RequestError: No installed package supports the address.
    """
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(address, use_listings_cache=False)
    except Exception as error:
        raise RequestError(
            f"Checkpoints cannot be copied to {without_secrets(address)} ({_reason(error)}): install the "
            "fsspec package for such addresses, or name another address."
        ) from error


def check_address(address: str) -> None:
    """Check that a file below an address can be written, read and removed.

    Raises:
        RequestError: One of these operations fails.
    """
    files, root = file_system(address)
    name, text = f"{root.rstrip('/')}/.shunter-{hashlib.sha256(address.encode()).hexdigest()[:8]}", b"may be removed"
    try:
        files.makedirs(root, exist_ok=True)
        files.pipe_file(name, text)
        found = files.cat_file(name)
        files.rm_file(name)
        if found != text:
            raise OSError("the content read differs from the content written")
    except Exception as error:
        raise RequestError(
            f"Checkpoints cannot be copied to {without_secrets(address)} ({_reason(error)}): name an "
            "address with permission to write, read and delete."
        ) from error


def remove_copies(address: str) -> None:
    """Remove all files below an address; a failure is logged as a warning."""
    try:
        files, root = file_system(address)
        if files.exists(root):
            files.rm(root, recursive=True)
    except Exception as error:
        log.warning("The copies of checkpoints at %s cannot be removed (%s).", without_secrets(address), _reason(error))


def _check_inside(name: str) -> None:
    """Raise CheckpointError for a file name outside of the folder, as the remote list may be forged."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise CheckpointError(f"its list names {name!r}, which is in another folder")


def _reason(error: Exception) -> str:
    return without_secrets(" ".join(str(error).split()) or type(error).__name__)
