"""What is kept of a pass that was tried: what it gained, or why it was refused."""

from collections.abc import Sequence
from typing import Literal

from shunter.frozen import Frozen

Source = Literal["measured", "counted", "simulated"]


class GainFigure(Frozen):
    """One figure without a pass and with it.

    Attributes:
        name: What it is, with the unit at its end, such as `batch_milliseconds`.
        before: Without the pass.
        after: With it.
        source: Where both come from.
    """

    name: str
    before: float
    after: float
    source: Source


class PassRecord(Frozen):
    """A pass that was tried.

    Attributes:
        name: Name of the pass.
        subject: What it was tried on, as people call it, such as `dlrm, member-0`.
        is_kept: Whether what it made is used.
        reason: Why it was kept or refused, in one sentence.
        figures: What was found; empty where it was refused before anything was.
    """

    name: str
    subject: str
    is_kept: bool
    reason: str
    figures: tuple[GainFigure, ...] = ()

    @property
    def metrics(self) -> dict[str, float]:
        """Figures for the run that it was tried in, and whether it was kept."""
        found = {f"{figure.name}.{side}": getattr(figure, side) for figure in self.figures for side in SIDES}
        return {f"pass.{self.name}.{name}": float(value) for name, value in {"kept": self.is_kept, **found}.items()}


SIDES = ("before", "after")


def rows_of(records: Sequence[PassRecord]) -> list[tuple[str, str, str, str]]:
    """Passes as a table for people: the pass, what it was tried on, what became of it, its figures."""
    return [
        (
            record.name,
            record.subject,
            f"{'kept' if record.is_kept else 'refused'}: {record.reason}",
            "; ".join(f"{one.name} {one.before:.6g} to {one.after:.6g}, {one.source}" for one in record.figures) or "-",
        )
        for record in records
    ]


COLUMNS = ("pass", "tried on", "outcome", "without it and with it")
