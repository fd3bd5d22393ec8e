"""Choice among several compressions: the fastest one within the limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from shunter.engine.passes.record import PassRecord
from shunter.engine.passes.registry import passes_of
from shunter.engine.passes.role import Tried
from shunter.engine.passes.trial import try_pass
from shunter.errors import InfeasibleError
from shunter.extensions.compression.bench import weight_bytes
from shunter.extensions.compression.subject import CompressionSubject, QualityLimit


@dataclass(frozen=True)
class Rivals:
    """Results of all compression methods on one model.

    Attributes:
        subject: Model of the fastest compression within the limits; the original model if no compression is faster.
        winner: Name of the fastest compression; None if the model is not compressed.
        records: Records of all compressions.
    """

    subject: CompressionSubject
    winner: str | None
    records: tuple[PassRecord, ...]


def try_rivals(subject: CompressionSubject, title: str) -> Rivals:
    """Try every compression method separately on the same model, and return the fastest within the limits.

    Args:
        subject: Model to compress, with the limits.
        title: Display name of the model.

    Raises:
        InfeasibleError: No compression keeps the quality within the size limit; the message names the nearest one.
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
    """Return a metric of the compressed model divided by the original model's; 1 if it was not measured."""
    return next((one.after / one.before for one in record.figures if one.name == name and one.before), 1.0)


def _check_possible(subject: CompressionSubject, records: Sequence[PassRecord]) -> None:
    """Raise if neither the original model nor any compressed one keeps the limits."""
    limits, limit = subject.limits, subject.limits.quality
    found = {record.name: {one.name: one.after for one in record.figures} for record in records if record.figures}
    keeping = {name: figures for name, figures in found.items() if limit.is_kept(figures[limit.metric])}
    if found and not keeping:
        nearest = min(found, key=lambda name: limit.loss(found[name][limit.metric]))
        raise InfeasibleError(_told(nearest, found, limit, f"No compression keeps {limit.label} {limit.bound:.4f}"))
    if limits.max_bytes is not None and (size := weight_bytes(subject.model)) > limits.max_bytes:
        what = f"No compression that keeps the {limit.label} fits {limits.max_bytes:,} bytes"
        if keeping:
            nearest = min(keeping, key=lambda name: keeping[name]["weight_bytes"])
            raise InfeasibleError(_told(nearest, keeping, limit, what))
        raise InfeasibleError(
            f"{what}: the model has {size:,} and cannot be compressed ({records[0].reason}); raise --max-bytes."
        )


def _told(nearest: str, found: dict[str, dict[str, float]], limit: QualityLimit, what: str) -> str:
    figures, option = found[nearest], "lower --min-auc" if limit.metric == "auc" else "raise --max-rmse"
    return (
        f"{what}: the nearest is {nearest} with {limit.label} {figures[limit.metric]:.4f} and "
        f"{figures['weight_bytes']:,.0f} bytes, so nothing was registered; {option} or raise --max-bytes."
    )
