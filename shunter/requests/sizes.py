"""Sizes in bytes as users write them."""

from pydantic import ByteSize, TypeAdapter, ValidationError

_SIZE: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)


def parse_bytes(text: str) -> int:
    """Parse a size such as `64MiB` or `2GB`: 2**20 bytes a MiB, 10**6 a MB.

    Raises:
        ValueError: The text is not a positive number with a unit.
    """
    try:
        size = int(_SIZE.validate_python(text))
    except ValidationError:
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is not a size: write a number with its unit, such as 512MiB or 2GiB")
    return size


def checked_bytes(text: str | None) -> str | None:
    """Return the text of a size option unchanged; None if the option is absent.

    Raises:
        ValueError: The text is not a size.
    """
    if text is not None:
        parse_bytes(text)
    return text
