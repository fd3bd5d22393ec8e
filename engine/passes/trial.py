"""Trials of passes: a worthwhile pass is kept, any other pass changes nothing, and all outcomes are recorded."""

from collections.abc import Sequence
from typing import TypeVar

from shunter.engine.passes.record import PassRecord
from shunter.engine.passes.role import Pass, Tried
from shunter.errors import ShunterError

Subject = TypeVar("Subject")


def try_pass(one: Pass[Subject], tried: Tried[Subject]) -> tuple[Subject, PassRecord]:
    """Apply an optimisation pass to a training job or model, and keep the result if the gain is worthwhile.

    Args:
        one: Pass.
        tried: Subject that the pass changes, with its title.

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
