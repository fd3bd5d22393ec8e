"""Processes in the background are found again, and never mistaken for others."""

import subprocess
import sys

import pytest

from shunter.errors import RequestError, ShunterError
from shunter.flows.command.daemons import Daemon, find, start, stop
from shunter.flows.command.services import Service, free_port
from shunter.hardware.devices.process_mark import process_mark
from shunter.settings import Settings

SLEEP = ("-c", "import time; time.sleep(600)")


def service(command: tuple[str, ...] = SLEEP) -> Service:
    return Service(name="Sleeper", command=command, environment={}, port=free_port(), health_path="/")


def test_started_it_is_found_until_it_is_stopped() -> None:
    daemon, process = start(service())
    assert find("Sleeper") == daemon
    stop(daemon)
    assert process.wait(10) != 0
    assert find("Sleeper") is None
    assert not Settings().services_directory.joinpath("sleeper.json").exists()


def test_what_it_writes_is_in_its_log() -> None:
    program = "import time; print('words of the service'); time.sleep(1)"
    daemon, process = start(service(("-c", program)))
    process.wait(60)
    assert daemon.log.read_text() == "words of the service\n"
    assert find("Sleeper") is None


def test_another_process_with_the_pid_of_a_former_one_is_left_alone() -> None:
    """After a reboot, or when the numbers have come round, the pid in the file is someone else's."""
    with subprocess.Popen([sys.executable, *SLEEP]) as other:
        former = Daemon(name="Sleeper", pid=other.pid, mark="another boot/1", url="", log=Settings().home)
        path = Settings().services_directory / "sleeper.json"
        path.parent.mkdir(parents=True)
        path.write_text(former.model_dump_json())
        assert find("Sleeper") is None
        assert not path.exists()
        stop(former)
        assert process_mark(other.pid)
        other.kill()


def test_process_that_has_ended_or_never_was_has_no_mark() -> None:
    with subprocess.Popen(["true"]) as ended:
        while process_mark(ended.pid):
            pass
    assert process_mark(2**22 + 1) is None


def test_a_damaged_file_counts_as_none() -> None:
    path = Settings().services_directory / "sleeper.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert find("Sleeper") is None


def test_taken_port_is_told_before_anything_is_started() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = service()
        with pytest.raises(RequestError, match=r"Port \d+ of Sleeper is in use"):
            start(Service(**{**vars(wanted), "port": taken.getsockname()[1]}))
    assert find("Sleeper") is None


def test_home_that_cannot_be_written_is_named(shunter_home) -> None:
    shunter_home.write_text("a file, no folder")
    with pytest.raises(ShunterError, match="SHUNTER_HOME"):
        start(service())
