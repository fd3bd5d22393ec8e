"""What a command has started and a kill has orphaned, such as Prefect's temporary server: ended by the next command.

Children inherit the environment, so a variable there says whose they are, whatever starts them and however early the
kill comes.
"""

import contextlib
import os
from typing import TYPE_CHECKING

from shunter.hardware.devices.process_mark import process_mark
from shunter.settings import Settings

if TYPE_CHECKING:
    import psutil

OWNER = "SHUNTER_COMMAND"
PATIENCE_SECONDS = 5.0


def mark_children() -> None:
    """Let all that this process starts from now on be known as its own."""
    os.environ[OWNER] = f"{os.getpid()} {process_mark(os.getpid())} {Settings().home.resolve()}"


def end_orphans() -> int:
    """End what commands of this home have started that are gone themselves; returns how many there were."""
    import psutil

    orphans = [process for process in psutil.process_iter() if _is_orphan(process)]
    for process in orphans:
        _signal(process, force=False)
    for process in psutil.wait_procs(orphans, PATIENCE_SECONDS)[1]:
        _signal(process, force=True)
    return len(orphans)


def _is_orphan(process: "psutil.Process") -> bool:
    import psutil

    try:
        if process.uids().effective != os.geteuid():
            return False
        owner = process.environ().get(OWNER, "").split(" ", maxsplit=2)
    except psutil.Error:
        return False
    if len(owner) < 3 or owner[2] != str(Settings().home.resolve()):
        return False
    return process_mark(int(owner[0])) != owner[1]


def _signal(process: "psutil.Process", *, force: bool) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        if force:
            process.kill()
        else:
            process.terminate()
