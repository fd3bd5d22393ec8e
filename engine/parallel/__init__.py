"""One training in many processes: plan, steps and sharded checkpoints."""

from shunter.engine.parallel.given import GivenTable
from shunter.engine.parallel.plan import Division, Machine, Sharding
from shunter.engine.parallel.stored import holds_sharded_checkpoint

__all__ = ["Division", "GivenTable", "Machine", "Sharding", "holds_sharded_checkpoint"]
