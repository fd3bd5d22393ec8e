"""Interface of all passes."""

from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from shunter.engine.passes.record import GainFigure

Stage = Literal["training", "compression"]
Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Gain:
    """Gain of a pass.

    Attributes:
        figures: Measured figures with and without the pass.
        reason: Reason why the pass is kept or not, in one sentence.
        is_worth: Whether the pass is worth keeping.
    """

    figures: tuple[GainFigure, ...]
    reason: str
    is_worth: bool


@dataclass(frozen=True)
class Tried(Generic[Subject]):
    """Subject that a pass is tried on, with its title."""

    subject: Subject
    title: str


class Pass(Protocol[Subject]):
    """Change to a training job (before it begins) or to a finished model (before it is registered).

    Calls in their order, all in one thread (`shunter.engine.passes.trial.try_pass`):

        applies     first: whether the pass suits the subject, without a change
        apply       returns the changed subject; the given subject stays unchanged
        gain        compares both subjects, by measurement if possible

    The subject is a `shunter.engine.passes.training.TrainingSubject` for the stage `training`, and for `compression`,
    whose passes lose some quality and are rivals instead of steps, a
    `shunter.extensions.compression.subject.CompressionSubject`.

    Attributes:
        name: Name on the model's card, in MLflow and on the command line.
    """

    name: str

    def applies(self, subject: Subject) -> str | None:
        """Return why the pass cannot be tried, in one sentence; None if it can."""
        ...

    def apply(self, subject: Subject) -> Subject:
        """Return the changed subject.

        Raises:
            ShunterError: It cannot be made; the message says why.
        """
        ...

    def gain(self, before: Subject, after: Subject) -> Gain:
        """Return the gain of the change.

        Raises:
            ShunterError: It cannot be found out.
        """
        ...
