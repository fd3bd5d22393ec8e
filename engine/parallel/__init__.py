"""One training in many processes: plan, steps, sharded checkpoints, and the launch of the processes."""

from engine.parallel.checkpoint import holds_sharded_checkpoint
from engine.parallel.launch import train_in_processes
from engine.parallel.plan import Machine, Sharding

__all__ = ["Machine", "Sharding", "holds_sharded_checkpoint", "train_in_processes"]
