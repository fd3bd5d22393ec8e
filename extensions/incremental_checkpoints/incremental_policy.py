"""Policies for the rows of the next checkpoint: all, or those touched since the last full or the last checkpoint.

    full            all rows each time
    one-shot        all rows once, then those touched since then: two parts are enough to restore, and each grows
    consecutive     all rows once, then those touched since the last checkpoint: parts are small, a restore needs all
    intermittent    one-shot, and all rows again as soon as a full checkpoint is expected to cost less
    auto            consecutive, separately for each of several ranges of rows; full ranges are written in turn

The first four policies are those of Check-N-Run (Eisenman et al., NSDI 2022). `auto` writes fewer bytes than these, and
stores hardly more than 1.5 x the bytes of a full checkpoint, however long the training run. As soon as all ranges
together would exceed that, the range whose parts have grown most is written in full and its older files are removed. So
no later checkpoint is full. Log-structured file systems clean segments in the same way (Rosenblum and Ousterhout, SOSP
1991).

Where intervals touch the same rows repeatedly, a part since the last full checkpoint costs hardly more than a part
since the last checkpoint. It also replaces all parts between. `auto` then writes the rows since the last full
checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shunter.engine.checkpoint.checkpoint_settings import RowSelection
from shunter.engine.checkpoint.generations import Content

# `auto` writes the rows since the last full checkpoint if they are at most this many times those since the last one.
SAME_ROWS = 1.1
# Bytes that `auto` stores beyond one full copy, as a share of it: with one range, and with many ranges written in turn.
KEPT_BEYOND_ALL, KEPT_BEYOND_ALL_IN_TURN = 1.0, 0.5


@dataclass(frozen=True, kw_only=True)
class TouchedShares:
    """Touched rows of a range, as shares of the range from 0 to 1.

    Attributes:
        parts: Share of rows in each checkpoint since the last full one, in order, without the full one.
        since_last: Share touched since the last checkpoint.
        since_full: Share touched since the last full checkpoint.
    """

    parts: Sequence[float]
    since_last: float
    since_full: float


def next_contents(policy: RowSelection, ranges: Sequence[TouchedShares]) -> list[Content]:
    """Return the content of the next checkpoint for each range of rows; all ranges are equally large.

    Args:
        policy: Checkpoint policy.
        ranges: Touched rows of each range.
    """
    if policy != "auto":
        return [_published_content(policy, one) for one in ranges]
    contents: list[Content] = [
        "since_full" if one.since_full <= SAME_ROWS * one.since_last else "since_last" for one in ranges
    ]
    grown = [
        one.since_full if content == "since_full" else sum(one.parts) + one.since_last
        for one, content in zip(ranges, contents, strict=True)
    ]
    most = len(ranges) * (KEPT_BEYOND_ALL if len(ranges) == 1 else KEPT_BEYOND_ALL_IN_TURN)
    while sum(grown) > most:
        largest = grown.index(max(grown))
        contents[largest], grown[largest] = "full", 0.0
    return contents


def _published_content(policy: RowSelection, growth: TouchedShares) -> Content:
    match policy:
        case "full":
            return "full"
        case "one-shot":
            return "since_full"
        case "consecutive":
            return "since_last"
        case "intermittent":
            return "full" if _costs_less_again(growth.parts, growth.since_full) else "since_full"
        case _:
            raise AssertionError(policy)


def _costs_less_again(parts: Sequence[float], since_full: float) -> bool:
    """Return True if a full checkpoint now, followed by as many parts as so far, costs less than continuing.

    The estimate assumes that parts only grow.
    """
    return 1 + sum(parts) <= (len(parts) + 1) * since_full
