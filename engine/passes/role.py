"""Interface of all passes."""

from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from shunter.engine.passes.record import GainFigure

Stage = Literal["training", "compression"]
Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Gain:
    """Gain of an optimisation pass.

    Attributes:
        figures: Measured figures with and without the pass.
        reason: Reason why the pass is kept or not, in one sentence.
        is_worth: Whether the gain is large enough to keep the pass.
    """

    figures: tuple[GainFigure, ...]
    reason: str
    is_worth: bool


@dataclass(frozen=True)
class Tried(Generic[Subject]):
    """Training job or model on which passes are tried, with a title for the record."""

    subject: Subject
    title: str


class Pass(Protocol[Subject]):
    """Change to a training job (before it begins) or to a finished model (before it is registered).

    `shunter.engine.passes.trial.try_pass` calls the methods in this order, in one thread:

        applies     returns the reason why the pass cannot be tried, if there is one
        apply       returns the changed subject; the given subject stays unchanged
        gain        compares both subjects, by measurement if possible

    The subject is what a pass changes. In the stage `training` the subject is a
    `shunter.engine.passes.training.TrainingSubject`, and the passes are applied one after the other. In the stage
    `compression` the subject is a `shunter.extensions.compression.subject.CompressionSubject`. Compression passes lose
    some quality, and are alternatives to each other.

    Attributes:
        name: Name on the model's card, in MLflow and on the command line.
    """

    name: str

    def applies(self, subject: Subject) -> str | None:
        """Return the reason why the pass cannot be tried, in one sentence; None if the pass can be tried."""
        ...

    def apply(self, subject: Subject) -> Subject:
        """Return the training job or model as changed by this pass; the given one stays unchanged.

        Raises:
            ShunterError: The change fails; the message gives the reason.
        """
        ...

    def gain(self, before: Subject, after: Subject) -> Gain:
        """Return the gain of the changed subject `after` over the given subject `before`.

        Raises:
            ShunterError: The gain cannot be determined.
        """
        ...
