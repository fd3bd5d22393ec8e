"""One training in many processes: plan, steps and sharded checkpoints."""

from engine.parallel.checkpoint import holds_sharded_checkpoint
from engine.parallel.plan import Machine, Sharding

__all__ = ["Machine", "Sharding", "holds_sharded_checkpoint"]
