"""From what a request says about checkpoints to how the engine keeps them."""

from pathlib import Path

from engine.checkpoint.growth import POLICIES
from engine.checkpoint.keeping import STORED_BITS, Bits, Keeping
from engine.job import Checkpointing
from shunter.requests import CheckpointBits, CheckpointRequest


def checkpointing_of(request: CheckpointRequest, directory: Path) -> Checkpointing:
    """Where, how often and how the state of one training is kept.

    Args:
        request: The options.
        directory: Folder of this training alone.
    """
    return Checkpointing(
        directory,
        seconds=60 * request.checkpoint_minutes,
        keeping=Keeping(
            bits=_bits(request.checkpoint_bits),
            policy=next(policy for policy in POLICIES if policy == request.checkpoint_policy),
            generations=request.keep_checkpoints,
            bytes_per_second=None if request.checkpoint_rate is None else request.checkpoint_rate * 2**20,
        ),
    )


def _bits(asked: CheckpointBits) -> Bits:
    return "auto" if asked is CheckpointBits.AUTO else next(bits for bits in STORED_BITS if str(bits) == asked.value)
