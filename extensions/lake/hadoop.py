"""Files of Hadoop, by libhdfs of PyArrow."""

from typing import Any, cast

from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow import fs as pa_fs
from pyarrow.lib import have_libhdfs

from shunter.errors import RequestError
from shunter.extensions.lake.store_errors import StoreError


class MissingHadoopError(RequestError):
    """Error: Hadoop's client library or Java, which read `hdfs://`, cannot be loaded.

    Attributes:
        address: Address of the data.
    """

    code = "missing-hadoop"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        """Return the error message."""
        return (
            f"{self.address} needs libhdfs and libjvm, which cannot be loaded: install Hadoop and Java, and set "
            "HADOOP_HOME, JAVA_HOME and CLASSPATH (the output of `hadoop classpath --glob`)."
        )


class HadoopFiles(ArrowFSWrapper):
    """Files of Hadoop, by the configuration in `HADOOP_CONF_DIR`.

    Args:
        origin: Address of the name node or service, such as `hdfs://default`.

    Raises:
        MissingHadoopError: libhdfs or libjvm cannot be loaded.
        StoreError: There is no connection.
    """

    cachable = False

    def __init__(self, origin: str) -> None:
        self.origin = origin
        host, _, port = origin.partition("://")[2].partition(":")
        try:
            files = pa_fs.HadoopFileSystem(host, int(port or 0))
        except OSError as error:
            if not have_libhdfs():
                raise MissingHadoopError(origin) from error
            raise StoreError(origin, 1, error) from error
        super().__init__(fs=files, skip_instance_cache=True)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Read a byte range of a file, opened as seekable; the base class would open a range at 0 as a stream."""
        return cast("bytes", super().cat_file(path, start, end, seekable=True))
