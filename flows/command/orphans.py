"""What a command has started and a kill has orphaned, such as Prefect's temporary server: ended by the next command.

Children inherit the environment, so a variable there says whose they are, whatever starts them and however early the
kill comes.
"""

import contextlib
import os
from typing import TYPE_CHECKING

from shunter.settings import Settings

if TYPE_CHECKING:
    import psutil

OWNER = "SHUNTER_COMMAND"
PATIENCE_SECONDS = 5.0


def mark_children() -> None:
    """Let all that this process starts from now on be known as its own."""
    import psutil

    os.environ[OWNER] = _mark(psutil.Process())


def end_orphans() -> int:
    """End what commands of this home have started that are gone themselves; returns how many there were."""
    import psutil

    orphans = [process for process in psutil.process_iter() if _is_orphan(process)]
    for process in orphans:
        _signal(process, force=False)
    for process in psutil.wait_procs(orphans, PATIENCE_SECONDS)[1]:
        _signal(process, force=True)
    return len(orphans)


def _mark(process: "psutil.Process") -> str:
    return f"{process.pid} {process.create_time():.2f} {Settings().home.resolve()}"


def _is_orphan(process: "psutil.Process") -> bool:
    import psutil

    try:
        if process.uids().effective != os.geteuid():
            return False
        pid, _, rest = process.environ().get(OWNER, "").partition(" ")
    except psutil.Error:
        return False
    if not pid or rest.partition(" ")[2] != str(Settings().home.resolve()) or process.pid == os.getpid():
        return False
    try:
        return _mark(psutil.Process(int(pid))) != f"{pid} {rest}"
    except psutil.NoSuchProcess:
        return True


def _signal(process: "psutil.Process", *, force: bool) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        if force:
            process.kill()
        else:
            process.terminate()
