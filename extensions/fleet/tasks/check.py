"""Check of saved policies, for `shunter doctor`."""

from collections.abc import Iterator
from pathlib import Path

from shunter.errors import ShunterError
from shunter.extensions.fleet.learned.file import load_policy
from shunter.tasks.kept_files import Compared


def check_policies(folder: Path) -> Iterator[Compared]:
    """Yield every policy of a folder, with its error if it cannot be loaded."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            load_policy(path)
        except ShunterError as error:
            yield Compared(path, fault=str(error))
        else:
            yield Compared(path)
