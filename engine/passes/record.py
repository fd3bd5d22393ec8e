"""Records of tried passes: their gains, or the reasons for their rejection."""

from collections.abc import Sequence
from typing import Literal

from shunter.frozen import Frozen

Source = Literal["measured", "counted", "simulated"]


class GainFigure(Frozen):
    """Value of one figure without and with an optimisation pass.

    Attributes:
        name: Name of the figure with its unit, such as `batch_milliseconds`.
        before: Value without the pass.
        after: Value with the pass.
        source: Source of both values, such as a measurement.
    """

    name: str
    before: float
    after: float
    source: Source


class PassRecord(Frozen):
    """Record of an optimisation pass that was tried, with its gain.

    Attributes:
        name: Name of the pass.
        subject: Label of the model that it was tried on, such as `dlrm, member-0`.
        is_kept: Whether the changed job or model is used.
        reason: Reason for keeping or rejecting the pass, in one sentence.
        figures: Measured figures; empty if the pass was rejected before a measurement.
    """

    name: str
    subject: str
    is_kept: bool
    reason: str
    figures: tuple[GainFigure, ...] = ()

    @property
    def metrics(self) -> dict[str, float]:
        """Return MLflow metrics of the run: the figures, and 1 or 0 for a kept or rejected pass."""
        found = {f"{figure.name}.{side}": getattr(figure, side) for figure in self.figures for side in SIDES}
        return {f"pass.{self.name}.{name}": float(value) for name, value in {"kept": self.is_kept, **found}.items()}


SIDES = ("before", "after")


def rows_of(records: Sequence[PassRecord]) -> list[tuple[str, str, str, str]]:
    """Return a table of passes with the columns name, subject, outcome and figures."""
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
