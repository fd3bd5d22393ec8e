"""Errors of stores of data."""

from shunter.errors import DataError


class NoAccessError(DataError):
    """Error: a store refuses access, or there are no credentials.

    Attributes:
        address: Address of the data.
    """

    code = "no-access"

    def __init__(self, address: str, reason: str = "its credentials are missing or refused") -> None:
        super().__init__(address, reason)
        self.address, self._reason = address, reason

    def __str__(self) -> str:
        """Return the error message."""
        return (
            f"{self.address} may not be read by this process ({self._reason}): configure or renew the credentials of "
            "the library that reads it, as docs/how-to/remote-data.md shows."
        )


class NoObjectError(DataError):
    """Error: no object, folder, bucket, table or version exists at an address.

    Attributes:
        address: Address of the data.
    """

    code = "no-object"

    def __init__(self, address: str, what: str = "holds no file") -> None:
        super().__init__(address, what)
        self.address, self._what = address, what

    def __str__(self) -> str:
        """Return the error message."""
        return f"{self.address} {self._what}: check the address."


class StoreError(DataError):
    """Error: a store does not answer, or answers wrongly, after several attempts.

    Attributes:
        address: Address of the data.
        attempts: Number of attempts.
    """

    code = "unreachable-store"

    def __init__(self, address: str, attempts: int, error: Exception) -> None:
        super().__init__(address, attempts, error)
        self.address, self.attempts = address, attempts

    def __str__(self) -> str:
        """Return the error message."""
        return (
            f"{self.address} cannot be read after {self.attempts} attempts ({type(self.args[2]).__name__}): check that "
            "the store can be reached."
        )


class ChangedObjectError(DataError):
    """Error: an object was replaced while it was read.

    Attributes:
        address: Address of the object.
    """

    code = "changed-object"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        """Return the error message."""
        return f"{self.address} changed while it was read: read it again when nothing writes to it."
