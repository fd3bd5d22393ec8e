"""Interface of all passes, the passes by their stage and name, and trials of passes.

A worthwhile pass is kept, any other pass changes nothing, and all outcomes are recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from shunter.engine.passes.record import GainFigure, PassRecord
from shunter.errors import ShunterError
from shunter.registry import Entry, Registry

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

    `shunter.engine.passes.role.try_pass` calls the methods in this order, in one thread:

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


def try_pass(one: Pass[Subject], tried: Tried[Subject]) -> tuple[Subject, PassRecord]:
    """Apply an optimisation pass to a training job or model, and keep the result if the gain is worthwhile.

    Returns:
        The changed subject if the pass is worthwhile, otherwise the given subject; and the record of the trial.
    """
    refusal = one.applies(tried.subject)
    if refusal is not None:
        return tried.subject, PassRecord(name=one.name, subject=tried.title, is_kept=False, reason=refusal)
    try:
        changed = one.apply(tried.subject)
        gain = one.gain(tried.subject, changed)
    except ShunterError as error:
        return tried.subject, PassRecord(name=one.name, subject=tried.title, is_kept=False, reason=str(error))
    record = PassRecord(
        name=one.name, subject=tried.title, is_kept=gain.is_worth, reason=gain.reason, figures=gain.figures
    )
    return (changed if gain.is_worth else tried.subject), record


def try_in_turn(passes: Sequence[Pass[Subject]], tried: Tried[Subject]) -> tuple[Subject, tuple[PassRecord, ...]]:
    """Try optimisation passes in turn, each on the result of the previous one; return the last result and records."""
    records: list[PassRecord] = []
    subject = tried.subject
    for one in passes:
        subject, record = try_pass(one, Tried(subject, tried.title))
        records.append(record)
    return subject, tuple(records)


COMPRESSION, REWRITING = "shunter.extensions.compression", "shunter.extensions.rewriting"
TRAINING_PASSES = Registry(
    "pass of a training run",
    {
        "compaction": Entry(target=f"{REWRITING}.training_passes:COMPACTION"),
        "packed_activations": Entry(target=f"{REWRITING}.training_passes:PACKED_ACTIVATIONS"),
        "rewriting": Entry(target=f"{REWRITING}.training_passes:REWRITING"),
    },
    group="shunter.training_passes",
)
COMPRESSIONS = Registry(
    "compression",
    {
        "int8": Entry(target=f"{COMPRESSION}.compression_passes:INT8"),
        "product": Entry(target=f"{COMPRESSION}.product_pass:PASS"),
        "pruning": Entry(target=f"{COMPRESSION}.compression_passes:PRUNING"),
        "rewriting": Entry(target=f"{REWRITING}.scoring_pass:PASS", needs="compression"),
    },
    group="shunter.compressions",
)
PASSES: dict[Stage, Registry] = {"training": TRAINING_PASSES, "compression": COMPRESSIONS}


def passes_of(stage: Stage) -> tuple[Pass[Any], ...]:
    """Return the installed passes of a stage."""
    return tuple(map(PASSES[stage].load, PASSES[stage].names))
