"""The plan flow under its former module, which deployments of earlier versions name."""

from shunter.flows.nightly import __getattr__  # noqa: F401
