"""SFTP server of one folder on this machine: `python -m tests.extensions.lake.ssh_server FOLDER PUBLIC_KEY`.

Prints its port and the key of its host. Each connection is closed after `CUT_AFTER` reads, if that is set.
"""

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.sftp import SFTP_OK

_CUT_AFTER = int(os.environ.get("CUT_AFTER", "0"))


class _Keys(paramiko.ServerInterface):
    def __init__(self, accepted: str, transport: paramiko.Transport) -> None:
        self.accepted, self.transport = accepted, transport

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        is_accepted = key.get_base64() == self.accepted
        return AUTH_SUCCESSFUL if is_accepted else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED


class _Handle(paramiko.SFTPHandle):
    reads = 0

    def __init__(self, flags: int, file: Any, server: _Keys) -> None:
        super().__init__(flags)
        self.readfile = self.writefile = file
        self._server = server

    def read(self, offset: int, length: int) -> bytes | int:
        self.reads += 1
        if _CUT_AFTER and self.reads > _CUT_AFTER:
            self._server.transport.close()
        return super().read(offset, length)

    def stat(self) -> Any:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))


class _Files(paramiko.SFTPServerInterface):
    def __init__(self, server: _Keys, root: Path) -> None:
        self._server, self._root = server, root

    def _at(self, path: str) -> Path:
        return self._root / self.canonicalize(path).lstrip("/")

    def list_folder(self, path: str) -> Any:
        found = self._done(lambda: sorted(self._at(path).iterdir()))
        if isinstance(found, int):
            return found
        return [paramiko.SFTPAttributes.from_stat(one.stat(), one.name) for one in found]

    def stat(self, path: str) -> Any:
        return self._done(lambda: paramiko.SFTPAttributes.from_stat(self._at(path).stat()))

    lstat = stat

    def open(self, path: str, flags: int, attr: Any) -> Any:
        def opened() -> _Handle:
            descriptor = os.open(self._at(path), flags, 0o600)
            return _Handle(flags, os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "rb"), self._server)

        return self._done(opened)

    def remove(self, path: str) -> Any:
        return self._done(lambda: self._at(path).unlink())

    def rename(self, oldpath: str, newpath: str) -> Any:
        return self._done(lambda: self._at(oldpath).rename(self._at(newpath)))

    posix_rename = rename

    def mkdir(self, path: str, attr: Any) -> Any:
        return self._done(lambda: self._at(path).mkdir())

    def rmdir(self, path: str) -> Any:
        return self._done(lambda: self._at(path).rmdir())

    @staticmethod
    def _done(work: Any) -> Any:
        try:
            found = work()
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)
        return SFTP_OK if found is None or isinstance(found, Path) else found


def _serve(root: Path, accepted: str) -> None:
    key = paramiko.ECDSAKey.generate()
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], key.get_name(), key.get_base64(), flush=True)
        while True:
            connection, _ = server.accept()
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files, root)
            with suppress(paramiko.SSHException, EOFError, OSError):  # a client that does not trust this host leaves
                transport.start_server(server=_Keys(accepted, transport))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2])
