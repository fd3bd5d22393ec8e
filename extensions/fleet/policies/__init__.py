"""Scheduling policies by name; a new policy needs a file and a line here."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from shunter.errors import RequestError
from shunter.extensions.fleet.policies import dally
from shunter.extensions.fleet.policies.fifo import Fifo, FifoSkip, LeastAttained, ShortestRemaining
from shunter.extensions.fleet.policies.gandiva import Gandiva
from shunter.extensions.fleet.policies.gavel import Gavel, GavelFifo, max_min, max_min_heterogeneous, min_makespan
from shunter.extensions.fleet.policies.moving import Moving
from shunter.extensions.fleet.policies.pollux import Pollux
from shunter.extensions.fleet.policies.role import Policy
from shunter.extensions.fleet.policies.sia import Sia
from shunter.extensions.fleet.policies.tiresias import Tiresias
from shunter.validation import unknown

if TYPE_CHECKING:
    from shunter.extensions.fleet.learned.policy import Learned

POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": Fifo,
    "fifo-skip": FifoSkip,
    "fifo-move": lambda: Moving("fifo-move", FifoSkip()),
    "srtf": ShortestRemaining,
    "las": LeastAttained,
    "tiresias": Tiresias,
    "gandiva": Gandiva,
    "gavel-max-min": partial(Gavel, "gavel-max-min", max_min, seed=0),
    "gavel-max-min-perf": partial(Gavel, "gavel-max-min-perf", max_min_heterogeneous),
    "gavel-fifo-perf": GavelFifo,
    "min-makespan": partial(Gavel, "min-makespan", min_makespan),
    "sia": Sia,
    "pollux": Pollux,
    "dally": dally.whole,
    "dally-auto": dally.auto,
    "dally-manual": dally.manual,
    "dally-nowait": dally.nowait,
    "dally-consolidated": dally.consolidated,
}


ALL, LEARNED = "all", "learned"


def policy_names(text: str) -> list[str]:
    """Return the policies of a comma-separated list, or for `all` those that need no training.

    Raises:
        RequestError: A policy is unknown or named twice, or the list is empty.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == [ALL]:
        return list(POLICIES)
    for name in names:
        if name not in POLICIES and not is_learned(name):
            raise RequestError(unknown(name, [*POLICIES, LEARNED, ALL], "policy"))
        if names.count(name) > 1:
            raise RequestError(f"the scheduling policy {name} is named twice: leave one out")
    if not names:
        raise RequestError(f"no scheduling policy is given: choose some of {', '.join(POLICIES)}")
    return names


def is_learned(name: str) -> bool:
    """Return True if a policy is a trained policy from a file."""
    return name == LEARNED or name.startswith(f"{LEARNED}:")


def trained_policies(names: Iterable[str]) -> "list[Learned]":
    """Load the trained policies among the given policy names, in their order; skip other names.

    Raises:
        ShunterError: A file does not contain a policy.
    """
    from shunter.extensions.fleet.learned.file import make_learned, policy_file

    return [make_learned(policy_file(name), make_policy) for name in names if is_learned(name)]


def make_policy(name: str) -> Policy:
    """Return a new policy object; `learned` or `learned:FILE` is one trained by `shunter fleet learn`.

    Raises:
        ShunterError: No policy has that name, or the file does not contain a policy.
    """
    if is_learned(name):
        return trained_policies([name])[0]
    if name not in POLICIES:
        raise RequestError(unknown(name, list(POLICIES), "policy"))
    return POLICIES[name]()
