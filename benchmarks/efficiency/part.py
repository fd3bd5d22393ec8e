"""What a part of the benchmark gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Part:
    """The figures of one part.

    Attributes:
        headline: Flat figures, named for the whole benchmark.
        details: Everything that was measured.
        seeds: Seeds of everything drawn.
    """

    headline: Mapping[str, float | int | str | bool | None]
    details: Mapping[str, Any]
    seeds: tuple[int, ...] = (0,)
