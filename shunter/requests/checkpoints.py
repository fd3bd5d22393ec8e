"""Request group of checkpoints: how the state of an unfinished training job is saved."""

from enum import StrEnum

from pydantic import Field, field_validator

from shunter.requests.groups import Group
from shunter.secrets import has_password


class CheckpointBits(StrEnum):
    """Bits per number of the embedding tables in a checkpoint."""

    AUTO = "auto"
    FULL = "32"
    EIGHT = "8"
    FOUR = "4"
    THREE = "3"
    TWO = "2"


class CheckpointPolicy(StrEnum):
    """Policy that decides which rows of the embedding tables a checkpoint contains."""

    AUTO = "auto"
    FULL = "full"
    ONE_SHOT = "one-shot"
    CONSECUTIVE = "consecutive"
    INTERMITTENT = "intermittent"


class CheckpointRequest(Group, frozen=True, title="Advanced: checkpoints"):
    """Checkpoint options: period, size, and number of kept checkpoints."""

    checkpoint_minutes: float = Field(
        default=5.0, gt=0, le=7 * 24 * 60, description="Longest time between two checkpoints, in minutes."
    )
    checkpoint_bits: CheckpointBits = Field(
        default=CheckpointBits.AUTO,
        description="Bits per weight of the tables in checkpoints; with 32 a resumed run is bitwise equal.",
    )
    checkpoint_policy: CheckpointPolicy = Field(
        default=CheckpointPolicy.AUTO,
        description="Table rows in a checkpoint: all (full), or only those changed since an earlier checkpoint.",
    )
    keep_checkpoints: int = Field(
        default=2, ge=1, le=1000, description="Number of checkpoints to keep, in case the newest is damaged."
    )
    checkpoint_rate: float | None = Field(
        default=None, gt=0, description="Maximum write rate of checkpoints, in MiB per second; if omitted, no limit."
    )
    checkpoint_copy: str | None = Field(
        default=None,
        min_length=1,
        max_length=2_000,
        description="Address of a copy of the checkpoints, from which another machine can resume.",
    )

    @property
    def is_incremental(self) -> bool:
        """Return True if checkpoints with only changed rows, or with quantised rows, are explicitly requested."""
        is_quantised = self.checkpoint_bits not in (CheckpointBits.AUTO, CheckpointBits.FULL)
        return is_quantised or self.checkpoint_policy not in (CheckpointPolicy.AUTO, CheckpointPolicy.FULL)

    @field_validator("checkpoint_copy")
    @classmethod
    def _holds_no_password(cls, address: str | None) -> str | None:
        if address is not None and has_password(address):
            raise ValueError(
                "the address contains a password, which would be stored with the request: configure it in "
                "fsspec (~/.config/fsspec) or in environment variables instead"
            )
        return address
