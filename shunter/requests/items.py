"""What a user asks of a model that ranks."""

from enum import StrEnum


class IndexChoice(StrEnum):
    """How the best items for a user are found."""

    AUTO = "auto"
    EXACT = "exact"
    APPROXIMATE = "approximate"
