"""What the next checkpoint holds: all rows, those touched since the last full one, or those since the last one.

    full            all rows each time
    one-shot        all rows once, then those touched since: two parts are enough to restore, and each grows
    consecutive     all rows once, then those touched since the last: small parts, of which none may be missing
    intermittent    one-shot, and all rows again as soon as that is expected to cost less
    auto            consecutive, in each of some ranges of rows by itself; a range is written whole again in turn

The first four are those of Check-N-Run (Eisenman et al., NSDI 2022). `auto` writes less than they do and keeps hardly
more than half as much again as a full checkpoint, however long the training: as soon as all ranges together would keep
more, the one whose parts have grown most begins anew, and its older files go. So no checkpoint is a full one again. It
is how file systems that only append clean up (Rosenblum and Ousterhout, SOSP 1991: segments). Where intervals touch the
same rows again and again, a part since the last full one costs hardly more than one since the last and takes the place
of all parts before; then it writes those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Policy = Literal["auto", "full", "one-shot", "consecutive", "intermittent"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
Content = Literal["full", "since_full", "since_last"]

# Within this factor of the rows touched since the last checkpoint, those since the full one are worth their bytes.
SAME_ROWS = 1.1
# What `auto` keeps beyond all rows once, as a share of them: of one range, and of many that begin anew in turn.
KEPT_BEYOND_ALL, KEPT_BEYOND_ALL_IN_TURN = 1.0, 0.5


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How much of a range of rows has been touched, as shares of it.

    Attributes:
        parts: What each checkpoint since the last full one holds, in their order; without that one.
        since_last: Touched since the last checkpoint.
        since_full: Touched since the last full one.
    """

    parts: Sequence[float]
    since_last: float
    since_full: float


def next_contents(policy: Policy, ranges: Sequence[Growth]) -> list[Content]:
    """Decide what the next checkpoint holds of each range of rows; all are as large.

    Args:
        policy: How.
        ranges: How much of each has been touched.
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


def _published_content(policy: Policy, growth: Growth) -> Content:
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
    """Whether all rows now, and then as many parts as so far, cost less than going on; parts only ever grow."""
    return 1 + sum(parts) <= (len(parts) + 1) * since_full
