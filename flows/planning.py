"""Plan flow under its former module name, to which deployments of earlier versions refer."""

from shunter.flows.nightly import __getattr__  # noqa: F401
