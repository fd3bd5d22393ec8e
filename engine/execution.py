"""Conversion of a placement to the engine's execution settings."""

from shunter.engine.config import Execution
from shunter.hardware.types import Placement


def execution_of(placement: Placement) -> Execution:
    """Return the execution settings of a placement."""
    return Execution(
        device=placement.device,
        threads=placement.threads,
        precision=placement.precision,
        batch_size=placement.batch_size,
        prefetch_depth=placement.prefetch_depth,
        embedding_memory_bytes=placement.embedding_memory_bytes,
    )
