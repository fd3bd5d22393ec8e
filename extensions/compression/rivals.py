"""Choice among several compressions: the fastest one within the limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shunter.engine.passes.record import PassRecord
from shunter.engine.passes.registry import passes_of
from shunter.engine.passes.role import Tried
from shunter.engine.passes.trial import try_pass
from shunter.errors import InfeasibleError
from shunter.extensions.compression.bench import weight_bytes
from shunter.extensions.compression.subject import CompressionSubject


@dataclass(frozen=True)
class Rivals:
    """Results of all compressions.

    Attributes:
        subject: Fastest improved result within the limits; the original if there is none.
        winner: Name of the fastest compression; None if the model is not compressed.
        records: Records of all compressions.
    """

    subject: CompressionSubject
    winner: str | None
    records: tuple[PassRecord, ...]


def try_rivals(subject: CompressionSubject, title: str) -> Rivals:
    """Try every compression separately on the same model, and return the fastest result within the limits.

    Args:
        subject: Model to compress, with the limits.
        title: Display name of the model.

    Raises:
        InfeasibleError: No compression reaches the lowest AUC within the size limit; the message names the nearest one.
    """
    best, winner, least = subject, None, 1.0
    records: list[PassRecord] = []
    for one in passes_of("compression"):
        made, record = try_pass(one, Tried(subject, title))
        records.append(record)
        share = ratio_of(record, "batch_milliseconds")
        if record.is_kept and (winner is None or share < least):
            best, winner, least = made, one.name, share
    if winner is None:
        _check_possible(subject, records)
    return Rivals(best, winner, tuple(records))


def ratio_of(record: PassRecord, name: str) -> float:
    """Return the ratio of a metric with a pass to the metric without it; 1 if it was not measured."""
    return next((one.after / one.before for one in record.figures if one.name == name and one.before), 1.0)


def _check_possible(subject: CompressionSubject, records: Sequence[PassRecord]) -> None:
    """Raise if neither the original model nor any compressed one keeps the limits."""
    limits = subject.limits
    found = {record.name: {one.name: one.after for one in record.figures} for record in records if record.figures}
    keeping = {name: figures for name, figures in found.items() if figures["auc"] >= limits.min_auc}
    if found and not keeping:
        raise InfeasibleError(_nearest(found, "auc", f"No compression keeps an AUC of {limits.min_auc:.4f}"))
    if limits.max_bytes is not None and (size := weight_bytes(subject.model)) > limits.max_bytes:
        what = f"No compression that keeps the AUC fits {limits.max_bytes:,} bytes"
        if keeping:
            raise InfeasibleError(_nearest(keeping, "weight_bytes", what))
        raise InfeasibleError(f"{what}: the model has {size:,}, and it cannot be compressed ({records[0].reason}).")


def _nearest(found: dict[str, dict[str, float]], by: Literal["auc", "weight_bytes"], what: str) -> str:
    name = max(found, key=lambda one: found[one][by] * (1 if by == "auc" else -1))
    figures = found[name]
    return (
        f"{what}: the nearest is {name} with AUC {figures['auc']:.4f} and {figures['weight_bytes']:,.0f} bytes, so "
        "nothing was registered; lower --min-auc or raise --max-bytes."
    )
