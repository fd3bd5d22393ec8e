"""Counts of the values in rows to score, and of values that the model does not know or cannot read."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from shunter.errors import UnusableValuesError
from shunter.ingestion.encoding.encoded import EncodedBag

MOST_LISTED = 5  # columns of one kind in a notice


class ValueFlag(IntFlag):
    """Flags of one value; a missing value has no flags."""

    GIVEN = 1
    UNKNOWN = 2  # out of the vocabulary; never set where ids are hashed or learned
    UNREADABLE = 4  # no finite float32 number in a numeric column
    NUMBER_FOR_TEXT = 8  # a number in a column with `text: true`: its leading or trailing zeros may be lost


LABELS = {
    ValueFlag.UNKNOWN: "Unknown values",
    ValueFlag.UNREADABLE: "Unreadable numbers",
    ValueFlag.NUMBER_FOR_TEXT: "Numbers for texts (zeros may be lost, see `text: true`)",
}
_MASKS = np.array([[[flag]] for flag in ValueFlag], np.uint8)


def kind_of(flag: ValueFlag) -> str:
    """Return the name of a flag in responses and metrics."""
    return str(flag.name).lower()


def flags_of_numbers(values: NDArray[np.floating], unreadable: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the `ValueFlag` bits of numbers, uint8; `values` is NaN where a number is missing or unreadable."""
    given = unreadable | ~np.isnan(values)
    return given * np.uint8(ValueFlag.GIVEN) | unreadable * np.uint8(ValueFlag.UNREADABLE)


def flags_of_ids(
    ids: NDArray[np.int32], given: NDArray[np.bool_], *, number_for_text: bool = False
) -> NDArray[np.uint8]:
    """Return the `ValueFlag` bits, uint8, of categorical values; id 0 of a value that is `given` means unknown."""
    flags = ValueFlag.GIVEN | (ValueFlag.NUMBER_FOR_TEXT if number_for_text else 0)
    return given * np.uint8(flags) | (given & (ids == 0)) * np.uint8(ValueFlag.UNKNOWN)


@dataclass(frozen=True)
class ValueCounts:
    """Numbers of values by flag and column.

    Attributes:
        columns: Names of the columns.
        counts: int64 [flags, columns], in the order of `ValueFlag`.
    """

    columns: tuple[str, ...]
    counts: NDArray[np.int64]

    @classmethod
    def of(
        cls, columns: Sequence[str], flags: NDArray[np.uint8] | None = None, bags: Sequence[EncodedBag] = ()
    ) -> "ValueCounts":
        """Count the values of raw rows by flag.

        Args:
            columns: Names of the numeric, single-valued and multi-valued columns.
            flags: uint8 [numeric and single-valued columns, rows]; None for no rows.
            bags: Encoded bags of the multi-valued columns.
        """
        counts = np.zeros((len(ValueFlag), len(columns)), np.int64)
        if flags is not None:
            masks = _MASKS if (flags > _MASKS[0]).any() else _MASKS[:1]
            counts[: len(masks), : len(flags)] = np.count_nonzero(flags & masks, axis=2)
            for place, bag in enumerate(bags, len(flags)):
                given = len(bag.values)
                counts[:, place] = given, np.count_nonzero(bag.values == 0), 0, given if bag.are_numbers else 0
        return cls(tuple(columns), counts)

    def __add__(self, other: "ValueCounts") -> "ValueCounts":
        """Return the counts of both sets of rows together."""
        return ValueCounts(self.columns, self.counts + other.counts)

    def numbers(self, flag: ValueFlag) -> dict[str, int]:
        """Return by column the number of values with the flag; columns without such values are left out."""
        return {self.columns[place]: int(self._of(flag)[place]) for place in np.flatnonzero(self._of(flag))}

    def shares(self, flag: ValueFlag) -> dict[str, float]:
        """Return by column, largest first, the share of non-missing values with the flag; shares of 0 are left out."""
        numbers, given = self._of(flag), self._of(ValueFlag.GIVEN)
        return _largest_first({self.columns[at]: float(numbers[at] / given[at]) for at in np.flatnonzero(numbers)})

    def _of(self, flag: ValueFlag) -> NDArray[np.int64]:
        return self.counts[flag.bit_length() - 1]

    def by_kind(self) -> dict[str, dict[str, float]]:
        """Return the shares of unusable values by name of the flag and by column, only for flags that occur."""
        if not self.counts[1:].any():
            return {}
        found = {kind_of(flag): self.shares(flag) for flag in LABELS}
        return {kind: shares for kind, shares in found.items() if shares}

    def notice(self) -> str:
        """Return one line about the unusable values; empty if all values are usable."""
        lines = [f"{label}: {listed(shares)}." for flag, label in LABELS.items() if (shares := self.shares(flag))]
        return " ".join(lines)

    def check(self, limit: float | None) -> None:
        """Raise if more than the share `limit` of the non-missing values of a column is unusable.

        Raises:
            UnusableValuesError: The share of a column exceeds the limit.
        """
        if limit is None:
            return
        unknown, unreadable = self.shares(ValueFlag.UNKNOWN), self.shares(ValueFlag.UNREADABLE)
        shares = {name: unknown.get(name, 0) + unreadable.get(name, 0) for name in {**unknown, **unreadable}}
        if above := _largest_first({name: share for name, share in shares.items() if share > limit}):
            raise UnusableValuesError(above, limit, listed(above))


def listed(shares: dict[str, float]) -> str:
    """Return shares as text, each after the name of its column; columns after `MOST_LISTED` are only counted."""
    shown = [f"{name[:40]} {100 * share:.3g} %" for name, share in list(shares.items())[:MOST_LISTED]]
    rest = len(shares) - len(shown)
    return ", ".join(shown) + (f" and {rest} more columns" if rest else "")


def _largest_first(shares: dict[str, float]) -> dict[str, float]:
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
