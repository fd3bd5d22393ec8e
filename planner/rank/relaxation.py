"""What it would take, where no candidate keeps the limits."""

import math
from collections.abc import Sequence

from shunter.frozen import Frozen
from shunter.planner.assessment import Assessment, Miss

DIGITS = 3


class Relaxation(Frozen):
    """Limits that, set like this, would be kept by a candidate; all others stay as they are."""

    placement: str
    bounds: dict[str, float]
    share: float

    @property
    def text(self) -> str:
        """For instance: `--max-hours 0.334 (for A100 x1 bf16 b4096)`."""
        return f"{' '.join(f'{option} {bound:.4g}' for option, bound in self.bounds.items())} (for {self.placement})"


def nearest_relaxations(table: Sequence[Assessment]) -> tuple[Relaxation, ...]:
    """For each limit the least change that suffices alone, and the smallest change of several together.

    Args:
        table: Candidates that all break a limit, the nearest first.

    Returns:
        The smallest change first; empty when nothing that the user sets would help.
    """
    possible = [row for row in table if all(_can_be_set(miss) for miss in row.excluded_by)]
    alone: dict[str, Assessment] = {}
    for row in possible:
        option = row.excluded_by[0].option
        if len(row.excluded_by) == 1 and option and (option not in alone or row.excess < alone[option].excess):
            alone[option] = row
    together = [row for row in possible if len(row.excluded_by) > 1][:1]
    chosen = [*alone.values(), *together]
    return tuple(sorted((_relaxation(row) for row in chosen), key=lambda relaxation: relaxation.share))


def _can_be_set(miss: Miss) -> bool:
    return miss.option is not None and miss.value is not None and math.isfinite(miss.excess)


def _relaxation(row: Assessment) -> Relaxation:
    bounds = {miss.option: _bound(miss) for miss in row.excluded_by if miss.option is not None}
    return Relaxation(placement=row.candidate.placement.label, bounds=bounds, share=row.excess)


def _bound(miss: Miss) -> float:
    """The value rounded to few digits, to the side on which it is kept."""
    assert miss.value is not None
    unit = 10.0 ** (math.floor(math.log10(miss.value)) - DIGITS + 1)
    steps = miss.value / unit
    return (math.floor(steps) if miss.at_least else math.ceil(steps)) * unit
