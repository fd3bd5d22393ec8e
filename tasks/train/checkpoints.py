"""Checkpoints of a training run: the engine's options from those of a request, and what a finished one leaves."""

from pathlib import Path

from shunter.engine.checkpoint.checked_files import CHOICES
from shunter.engine.checkpoint.checkpoint_settings import ROW_SELECTIONS, CheckpointSettings, stored_bits
from shunter.engine.job import Checkpointing
from shunter.requests import CheckpointRequest


def checkpointing_of(request: CheckpointRequest, directory: Path) -> Checkpointing:
    """Return where, how often and how the checkpoints of a training run are written.

    Args:
        request: Options of the checkpoints.
        directory: Folder of this training run alone.
    """
    return Checkpointing(
        directory,
        seconds=60 * request.checkpoint_minutes,
        checkpoint_settings=CheckpointSettings(
            bits=stored_bits(request.checkpoint_bits.value),
            rows=next(policy for policy in ROW_SELECTIONS if policy == request.checkpoint_policy),
            generations=request.keep_checkpoints,
            bytes_per_second=None if request.checkpoint_rate is None else request.checkpoint_rate * 2**20,
            copied_to=request.checkpoint_copy,
        ),
    )


def remove_but_choices(folder: Path) -> None:
    """Remove the state of a finished training run, except for the choices by which it was computed."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif not path.match(CHOICES):
            path.unlink()
