"""Scheduling policies by name; a new policy needs a class and a line here."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from shunter.errors import RequestError
from shunter.extensions.fleet.board import Policy
from shunter.extensions.fleet.policies.dally import NEVER_WAIT, WAIT_FOR_EVER, AutoTuner, Delayed, FixedTimers
from shunter.extensions.fleet.policies.dally_moves import Mover
from shunter.extensions.fleet.policies.elastic import Pollux, Sia
from shunter.extensions.fleet.policies.gavel import Gavel, GavelFifo, max_min, max_min_heterogeneous, min_makespan
from shunter.extensions.fleet.policies.queues import (
    Fifo,
    FifoSkip,
    Gandiva,
    LeastAttained,
    Moving,
    ShortestRemaining,
    Tiresias,
)
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
    "dally": lambda: Delayed("dally", AutoTuner(), Mover(), reserves=True),
    "dally-auto": lambda: Delayed("dally-auto", AutoTuner()),
    "dally-manual": lambda: Delayed("dally-manual", FixedTimers()),
    "dally-nowait": lambda: Delayed("dally-nowait", FixedTimers(NEVER_WAIT)),
    "dally-consolidated": lambda: Delayed("dally-consolidated", FixedTimers(WAIT_FOR_EVER)),
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
