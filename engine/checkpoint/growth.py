"""What the next checkpoint holds: all rows, those touched since the last full one, or those since the last one.

    full            all rows each time
    one-shot        all rows once, then those touched since: two parts are enough to restore, and each grows
    consecutive     all rows once, then those touched since the last: small parts, of which none may be missing
    intermittent    one-shot, and all rows again as soon as that is expected to cost less
    auto            small parts until they are as much as all rows, then all rows again

The first four are those of Check-N-Run (Eisenman et al., NSDI 2022). `auto` writes less than they do and keeps at most
twice the bytes of a full checkpoint: with a share `s` touched in each interval, about `1/s` parts cost one more.
Where intervals touch the same rows again and again, a part since the last full one costs hardly more than one since
the last and takes the place of all parts before; then it writes those.
"""

from collections.abc import Sequence
from typing import Literal, get_args

Policy = Literal["auto", "full", "one-shot", "consecutive", "intermittent"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
Content = Literal["full", "since_full", "since_last"]

# Within this factor of the rows touched since the last checkpoint, those since the full one are worth their bytes.
SAME_ROWS = 1.1


def next_content(policy: Policy, parts: Sequence[float], since_last: float, since_full: float) -> Content:
    """Decide what the next checkpoint holds.

    Args:
        policy: How.
        parts: Share of all rows in each checkpoint since the last full one, in their order; without that one.
        since_last: Share of all rows touched since the last checkpoint.
        since_full: Share of all rows touched since the last full one.
    """
    match policy:
        case "full":
            return "full"
        case "one-shot":
            return "since_full"
        case "consecutive":
            return "since_last"
        case "intermittent":
            return "full" if _costs_less_again(parts, since_full) else "since_full"
        case "auto":
            if since_full <= SAME_ROWS * since_last:
                return "since_full"
            return "full" if sum(parts) + since_last > 1 else "since_last"


def _costs_less_again(parts: Sequence[float], since_full: float) -> bool:
    """Whether all rows now, and then as many parts as so far, cost less than going on; parts only ever grow."""
    return 1 + sum(parts) <= (len(parts) + 1) * since_full
