"""Files of SSH servers, by SFTP of paramiko."""

import os
from pathlib import Path, PurePosixPath
from typing import Any

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

from shunter.extensions.lake.store_errors import NoAccessError
from shunter.settings import Settings

_SSH_PORT = 22


class SshFiles(SFTPFileSystem):
    """Files of an SSH server; connects when needed, and again after the connection is lost. Not thread-safe.

    Host, port, user and keys are those of `~/.ssh/config`, of the SSH agent and of `~/.ssh`. The key of the host must
    be in `known_hosts`.

    Args:
        origin: Address of the server.
    """

    cachable = False

    def __init__(self, origin: str) -> None:
        self.origin = origin
        super().__init__(origin.partition("://")[2], skip_instance_cache=True)

    def _connect(self) -> None:
        self._client: paramiko.SSHClient | None = None

    @property
    def ftp(self) -> paramiko.SFTPClient:
        """Client of the open connection, which is opened if there is none.

        Raises:
            NoAccessError: The key of the host is unknown or has changed, or no key of the user is accepted.
        """
        transport = self._client and self._client.get_transport()
        if transport is None or not transport.is_active():
            self._client = _connected(self.origin)
            self._files = self._client.open_sftp()
            channel = self._files.get_channel()
            assert channel is not None
            channel.settimeout(Settings().object_timeout_seconds)
        return self._files

    def makedirs(self, path: str, exist_ok: bool = False, mode: int = 0o777) -> None:
        """Create a folder and its parents; fsspec's own method takes the first folder of a path for a host."""
        folder = PurePosixPath(self._strip_protocol(path))
        for one in [*reversed(folder.parents), folder]:
            if not self.exists(str(one)):
                self.ftp.mkdir(str(one), mode)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Read a range of a file with many requests at once; a connection that is silent or lost is closed."""
        file = self.ftp.open(path, "rb")
        try:
            first, last = start or 0, self.info(path)["size"] if end is None else end
            return b"".join(file.readv([(first, last - first)]))
        except (OSError, EOFError, paramiko.SSHException):
            assert self._client is not None
            self._client.close()
            raise
        finally:
            file.close()


class _UnknownHostError(Exception):
    """Error: the key of a host is not in `known_hosts`."""


class _KnownHosts(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise _UnknownHostError(hostname)


def _connected(origin: str) -> paramiko.SSHClient:
    host, _, port = origin.partition("://")[2].partition(":")
    own = Path("~/.ssh/config").expanduser()
    config = paramiko.SSHConfig.from_path(os.fspath(own)) if own.exists() else paramiko.SSHConfig()
    stated = config.lookup(host)
    seconds = Settings().object_timeout_seconds
    client = paramiko.SSHClient()
    client.load_system_host_keys()
    client.set_missing_host_key_policy(_KnownHosts())
    try:
        client.connect(
            stated["hostname"],
            port=int(port or stated.get("port", _SSH_PORT)),
            username=stated.get("user"),
            key_filename=stated.get("identityfile"),
            timeout=seconds,
            banner_timeout=seconds,
            auth_timeout=seconds,
        )
    except (paramiko.BadHostKeyException, _UnknownHostError) as error:
        client.close()
        raise NoAccessError(origin, "the key of its host is not that of known_hosts") from error
    except (paramiko.SSHException, OSError) as error:
        transport = client.get_transport()
        is_refused = isinstance(error, paramiko.AuthenticationException) or bool(transport and transport.is_active())
        client.close()
        if is_refused:  # the last fault of several keys, or a key that cannot be read
            raise NoAccessError(origin) from error
        raise
    return client
