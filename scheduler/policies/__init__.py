"""The policies by name; a new one is a file and a line here."""

from collections.abc import Callable

from scheduler.policies import dally
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.policies.role import Policy
from scheduler.policies.shortest import LeastAttained, ShortestRemaining
from scheduler.policies.tiresias import Tiresias
from shunter.errors import RequestError
from shunter.validation import unknown

POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": Fifo,
    "fifo-skip": FifoSkip,
    "srtf": ShortestRemaining,
    "las": LeastAttained,
    "tiresias": Tiresias,
    "dally": dally.whole,
    "dally-auto": dally.auto,
    "dally-manual": dally.manual,
    "dally-nowait": dally.nowait,
    "dally-consolidated": dally.consolidated,
}


def make_policy(name: str) -> Policy:
    """A fresh policy.

    Raises:
        RequestError: No policy has that name.
    """
    if name not in POLICIES:
        raise RequestError(unknown(name, list(POLICIES), "policy"))
    return POLICIES[name]()
