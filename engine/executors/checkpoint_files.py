"""A checkpoint as a value that travels: read where the training runs, kept where its flow runs."""

from pathlib import Path

from engine.checkpoint.storage import write_text

MANIFEST = "checkpoint.json"  # names the other files, so it is written last and read first

Files = dict[str, bytes]


class CheckpointWatch:
    """Notices a replaced checkpoint; asked from the thread that trains, so that nothing changes meanwhile.

    Args:
        directory: Folder of the checkpoints.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = self._stamp()

    def changed(self) -> Files | None:
        """All files of the checkpoint if it is another than at the last call, else None."""
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        return read_checkpoint(self._directory)

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = (self._directory / MANIFEST).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def read_checkpoint(directory: Path) -> Files:
    """The files of a checkpoint by name; empty when there is none."""
    if not (directory / MANIFEST).exists():
        return {}
    return {path.name: path.read_bytes() for path in directory.glob("*") if path.name == MANIFEST or _is_part(path)}


def write_checkpoint(files: Files, directory: Path) -> None:
    """Replace the checkpoint in a folder; killed at any moment, the former or the new one is complete."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if name != MANIFEST:
            partial = directory / f"{name}.tmp"
            partial.write_bytes(content)
            partial.replace(directory / name)
    if MANIFEST in files:
        write_text(directory / MANIFEST, files[MANIFEST].decode())
    for path in directory.glob("*"):
        if _is_part(path) and path.name not in files:
            path.unlink(missing_ok=True)


def _is_part(path: Path) -> bool:
    return path.suffix == ".safetensors"
