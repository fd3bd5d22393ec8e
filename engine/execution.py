"""From where a training shall run to what the engine is told."""

from shunter.engine.config import Execution
from shunter.hardware.types import Placement


def execution_of(placement: Placement) -> Execution:
    """The engine's view of a placement."""
    return Execution(
        device=placement.device,
        threads=placement.threads,
        precision=placement.precision,
        batch_size=placement.batch_size,
        prefetch_depth=placement.prefetch_depth,
        embedding_memory_bytes=placement.embedding_memory_bytes,
    )
