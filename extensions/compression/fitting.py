"""Choice among several compressed models of one kind: the fastest one within the limits after fine-tuning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from shunter.extensions.compression.bench import weight_bytes
from shunter.extensions.compression.fine_tune import fine_tune
from shunter.extensions.compression.subject import CompressionSubject, members_of, with_members


@dataclass(frozen=True)
class Candidate:
    """Compressed model that can be fine-tuned.

    Attributes:
        name: Display name.
        learning: Function that builds the trainable layers of each member.
        finished: Function that converts the trained layers to layers for scoring, in the same order.
    """

    name: str
    learning: Callable[[], Sequence[nn.Module]]
    finished: Callable[[Sequence[nn.Module]], Sequence[nn.Module]]


def fastest_within_limits(subject: CompressionSubject, candidates: Sequence[Candidate]) -> CompressionSubject:
    """Return the fastest candidate within the limits, by bisection; if there is none, the most accurate one tried.

    About `log2(n)` of `n` candidates are fine-tuned and measured. Slower candidates are assumed to be more accurate.

    Args:
        subject: Model to compress, with the limits.
        candidates: Candidates, the fastest first.

    Returns:
        Subject with the compressed model and its name.

    Raises:
        DataError: An array cannot be read.
    """
    best, nearest, least = None, None, float("inf")
    first, end = 0, len(candidates)
    while first < end:
        middle = (first + end) // 2
        made = _fine_tuned(subject, candidates[middle])
        limits = subject.limits
        quality = limits.quality.of(subject.bench.quality(made.model))
        fits = limits.max_bytes is None or weight_bytes(made.model) <= limits.max_bytes
        if limits.quality.is_kept(quality) and fits:
            best, end = made, middle
        else:
            first = middle + 1
        if (loss := limits.quality.loss(quality)) < least:
            nearest, least = made, loss
    found = best or nearest
    assert found is not None, "there is a candidate"
    return found


def _fine_tuned(subject: CompressionSubject, candidate: Candidate) -> CompressionSubject:
    members, learning = members_of(subject.model), candidate.learning()
    bench = subject.bench
    for member, layers in zip(members, learning, strict=True):
        fine_tune(layers, member, bench.dataset, bench.execution, subject.fine_tuning)
    finished = candidate.finished(learning)
    made = [member.with_layers(layers).eval() for member, layers in zip(members, finished, strict=True)]
    return replace(subject.with_model(with_members(subject.model, made)), form_name=candidate.name)
