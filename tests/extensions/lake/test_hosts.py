"""Files of an SSH server in a process of its own, and of Hadoop's interface on a local folder."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pa_fs
import pytest

from shunter.errors import RequestError
from shunter.extensions.lake.hadoop import MissingHadoopError
from shunter.extensions.lake.store_errors import ChangedObjectError, NoAccessError, NoObjectError, StoreError
from shunter.ingestion.sources.addresses import copy_objects, find_objects, local_folders, output_path
from shunter.ingestion.sources.guard import address_of
from shunter.ingestion.sources.open import find_files

paramiko = pytest.importorskip("paramiko")
LONG = bytes(range(256)) * (40 << 10)  # 10 MiB, of more than one range


@dataclass
class Server:
    """SSH server: its address, the folder that it serves, and the folder `.ssh` of the client."""

    address: str
    folder: Path
    configuration: Path


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """Yield a function that starts a server which the client of this process may use."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr("shunter.extensions.lake.objects._FIRST_WAIT_SECONDS", 0.001)
    (own := tmp_path / "home" / ".ssh").mkdir(parents=True)
    (folder := tmp_path / "served").mkdir()
    key = paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(own / "key_of_shop"))
    running: list[subprocess.Popen[str]] = []

    def start(**environment: str) -> Server:
        command = [sys.executable, "-m", "tests.extensions.lake.ssh_server", str(folder), key.get_base64()]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={"PATH": "", **environment}
        )
        running.append(process)
        assert process.stdout is not None
        port, kind, host_key = process.stdout.readline().split()
        (own / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {host_key}\n")
        stated = {"HostName": "127.0.0.1", "Port": port, "User": "reader", "IdentityFile": str(own / "key_of_shop")}
        (own / "config").write_text("Host shop\n" + "".join(f"  {name} {value}\n" for name, value in stated.items()))
        return Server("sftp://shop", folder, own)

    yield start
    for process in running:
        process.terminate()
        process.wait()


def test_files_of_an_ssh_server_are_found_and_copied_once(serve: Callable[..., Server]) -> None:
    server = serve()
    (server.folder / "day=1").mkdir()
    (server.folder / "day=1" / "log.csv").write_bytes(LONG)
    (server.folder / "log.csv").write_bytes(b"a,b\n1,2\n")
    for data in (server.address + "/", server.address + "/*"):
        found = find_files(data)
        assert found[-1].read_bytes() == b"a,b\n1,2\n"
    [partition, plain] = find_files(server.address + "/")
    assert partition.read_bytes() == LONG
    assert address_of(plain) == "sftp://shop/log.csv"
    stamp = plain.stat().st_mtime_ns
    assert find_files(server.address + "/log.csv")[0].stat().st_mtime_ns == stamp
    with pytest.raises(NoObjectError):
        find_files(server.address + "/nothing.csv")


def test_a_lost_connection_is_opened_again(serve: Callable[..., Server]) -> None:
    server = serve(CUT_AFTER="300")  # of requests for 32 KiB: enough for a range, not for the file
    (server.folder / "log.csv").write_bytes(LONG)
    [copy] = find_files(server.address + "/log.csv")
    assert copy.read_bytes() == LONG


def test_unknown_hosts_and_refused_keys_are_told_apart(serve: Callable[..., Server]) -> None:
    server = serve()
    (server.folder / "log.csv").write_bytes(b"a\n1\n")
    known = (server.configuration / "known_hosts").read_text()
    for text in ("", known.replace(known.split()[2], paramiko.ECDSAKey.generate().get_base64())):
        (server.configuration / "known_hosts").write_text(text)
        with pytest.raises(NoAccessError, match="known_hosts"):
            find_files(server.address + "/log.csv")
    (server.configuration / "known_hosts").write_text(known)
    paramiko.ECDSAKey.generate().write_private_key_file(str(server.configuration / "key_of_shop"))
    with pytest.raises(NoAccessError):
        find_files(server.address + "/log.csv")
    (server.configuration / "key_of_shop").unlink()
    with pytest.raises(NoAccessError):
        find_files(server.address + "/log.csv")
    with pytest.raises(RequestError):
        find_files("sftp://reader:word@shop/log.csv")


def test_a_server_that_is_away_is_not_an_empty_folder(serve: Callable[..., Server]) -> None:
    server = serve()
    text = (server.configuration / "config").read_text()
    port = text.partition("Port ")[2].split()[0]
    (server.configuration / "config").write_text(text.replace(port, "1"))
    for data in ("/", "/*.csv", "/log.csv"):
        with pytest.raises(StoreError):
            find_files(server.address + data)


def test_a_file_that_changes_is_refused(serve: Callable[..., Server]) -> None:
    server = serve()
    (server.folder / "log.csv").write_bytes(b"a\n1\n")
    address = server.address + "/log.csv"
    found = find_objects(address)
    assert found is not None
    (server.folder / "log.csv").write_bytes(b"a\n1\n2\n")
    with pytest.raises(ChangedObjectError):
        copy_objects(found)


def check_outputs(origin: str, folder: Path) -> None:
    with output_path(f"{origin}/models/increment", "FOLDER") as made:
        (made / "data").mkdir(parents=True)
        (made / "increment.json").write_text("{}")
        (made / "data" / "rows.bin").write_bytes(b"rows")
    with output_path(f"{origin}/scores/day.csv", "--out") as made:
        made.write_text("probability\n0.5\n")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == ["models/increment/data/rows.bin", "models/increment/increment.json", "scores/day.csv"]
    assert len([*folder.iterdir()]) == 2
    with local_folders([f"{origin}/models/increment"]) as [copy]:
        assert (copy / "data" / "rows.bin").read_bytes() == b"rows"
    with pytest.raises(RequestError), output_path(f"{origin}/scores/day.csv", "--out"):
        pass


def test_outputs_are_sent_to_an_ssh_server(serve: Callable[..., Server]) -> None:
    server = serve()
    check_outputs(server.address, server.folder)


def test_hadoop_is_read_and_written_by_its_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "served").mkdir()
    asked = []

    def local(host: str, port: int) -> pa_fs.FileSystem:  # libhdfs and a cluster are not here
        asked.append((host, port))
        return pa_fs.SubTreeFileSystem(str(folder), pa_fs.LocalFileSystem())

    monkeypatch.setattr("pyarrow.fs.HadoopFileSystem", local)
    check_outputs("hdfs://name:8020", folder)
    (folder / "log.csv").write_bytes(LONG)
    [copy] = find_files("hdfs://name:8020/log.csv")
    assert (copy.read_bytes(), address_of(copy)) == (LONG, "hdfs://name:8020/log.csv")
    with pytest.raises(NoObjectError):
        find_files("hdfs://default/nothing.csv")
    assert {*asked} == {("name", 8020), ("default", 0)}


def test_hadoop_without_its_libraries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingHadoopError) as error:
        find_files("hdfs://name/log.csv")
    assert (error.value.code, error.value.address) == ("missing-hadoop", "hdfs://name")
