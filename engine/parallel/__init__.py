"""One training in many processes: plan, steps and sharded checkpoints."""

from engine.parallel.given import GivenTable
from engine.parallel.plan import Division, Machine, Sharding
from engine.parallel.stored import holds_sharded_checkpoint

__all__ = ["Division", "GivenTable", "Machine", "Sharding", "holds_sharded_checkpoint"]
