"""One training in many processes: plan, steps and sharded checkpoints."""

from shunter.engine.parallel.given import GivenTable
from shunter.engine.parallel.plan import Division, Machine, Sharding

__all__ = ["Division", "GivenTable", "Machine", "Sharding"]
