"""One training run in many processes: plan, steps and sharded checkpoints."""

from shunter.extensions.distributed.training.plan import Division, Machine, Sharding

__all__ = ["Division", "Machine", "Sharding"]
