"""Request options of ranking models."""

from enum import StrEnum


class IndexChoice(StrEnum):
    """Method of finding the best items for a user."""

    AUTO = "auto"
    EXACT = "exact"
    APPROXIMATE = "approximate"
