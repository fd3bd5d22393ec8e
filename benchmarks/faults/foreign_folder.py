"""Every command in a folder that holds a module of every name and every settings file that a dependency reads."""

import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.commands import REFUSED
from shunter.flows.command.services import free_port
from tests.faults.foreign_folder import variables, write_foreign_folder
from tests.faults.household import COMMANDS, NEW, SERVERS, SHUNTER

PATIENCE_SECONDS, POLL_SECONDS = 900.0, 0.2
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass
class ForeignCommand:
    """A command that was given in a folder of a stranger.

    Attributes:
        command: Its name.
        code: Its exit code; 0 for a rollback to the version that is the champion already, which is refused.
        files_run: Files of that folder that ran.
    """

    command: str
    code: int | None = None
    files_run: list[str] = field(default_factory=list)


def foreign_by_outcome(found: Sequence[ForeignCommand]) -> dict[str, int]:
    """Count the commands, those that failed, and the files of the folder that ran."""
    return {
        "foreign_commands": len(found),
        "foreign_commands_failed": sum(one.code != 0 for one in found),
        "foreign_files_run": sum(len(one.files_run) for one in found),
    }


def commands_in_foreign_folder(folder: Path, count: int | None, keep: Callable[[ForeignCommand], None]) -> None:
    """Give all commands, or the first few, in a folder of a stranger, and then start and end the services.

    Args:
        folder: Folder for the home and for the folder of the stranger.
        count: Number of commands; all where it is None.
        keep: Function that is given each result.
    """
    foreign, home, markers = folder / "foreign", folder / "home", folder / "markers"
    markers.mkdir(parents=True)
    write_foreign_folder(foreign, markers)
    ports = ("--prefect-port", str(free_port()), "--mlflow-port", str(free_port()))
    given = dict(list(COMMANDS.items())[:count]) | {"up": ports, "down": ()}
    for number, (name, arguments) in enumerate(given.items()):
        words = [*name.split(), *(one.replace(NEW, str(number)) for one in arguments)]
        code = _give(words, foreign, home, is_server=name in SERVERS)
        found = ForeignCommand(name, 0 if name == "rollback" and code == REFUSED else code)
        found.files_run = sorted(one.name for one in markers.iterdir())
        for one in markers.iterdir():
            one.unlink()
        print(f"{name} in a folder of a stranger: ended with {found.code}, ran {found.files_run}", flush=True)
        keep(found)


def _give(words: Sequence[str], foreign: Path, home: Path, *, is_server: bool) -> int | None:
    """Return the exit code of a command, None after a timeout; a server gets SIGINT once it answers."""
    log = home.with_name(f"{'-'.join(words[:2])}.log".replace("/", "-"))
    with log.open("w") as output:
        environment = variables(home) | {"PYTHONPATH": ""}
        process = subprocess.Popen([SHUNTER, *words], cwd=foreign, env=environment, stdout=output, stderr=output)
    if is_server:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and not ADDRESS.search(log.read_text()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        process.send_signal(signal.SIGINT)
    try:
        code = process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return None
    if code:
        print(log.read_text()[-2000:], flush=True)
    return code
