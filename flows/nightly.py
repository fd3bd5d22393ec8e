"""Nightly flow under its former module name, to which deployments of earlier versions refer."""

from typing import Any

from shunter.registry import Entry, Registry

MOVED = Registry(
    "deployed flow",
    {
        "nightly": Entry(target="shunter.retraining.nightly_flow:nightly"),
        "plan": Entry(target="shunter.extensions.distributed.plan_flow:plan"),
    },
    "shunter.moved_flows",
)


def __getattr__(name: str) -> Any:
    """Import and return the flow, which Prefect loads by its name."""
    if name not in MOVED.entries:
        raise AttributeError(name)
    return MOVED.load(name)
