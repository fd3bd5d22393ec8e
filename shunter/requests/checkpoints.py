"""Request group of checkpoints: how the state of an unfinished training is saved."""

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
    """How often the state of a training is saved, how small, and how many states are kept."""

    checkpoint_minutes: float = Field(
        default=5.0, gt=0, le=7 * 24 * 60, description="Longest time between two checkpoints, in minutes."
    )
    checkpoint_bits: CheckpointBits = Field(
        default=CheckpointBits.AUTO,
        description="Bits of a number of the embedding tables in a checkpoint: 32 (all digits: an interrupted training "
        "ends bit by bit as an undisturbed one), 8, or 4, 3 or 2 (with the tenth of the rows that is looked up most in "
        "8); auto is 32 while the tables take less than 1 GiB, and then 8.",
    )
    checkpoint_policy: CheckpointPolicy = Field(
        default=CheckpointPolicy.AUTO,
        description="What a checkpoint holds of the embedding tables: full (all rows), or the rows that were touched "
        "since the last full one (one-shot, intermittent) or since the one before (consecutive); auto writes small "
        "ones until they are as large as a full one, and all rows of tables below 1 MiB.",
    )
    keep_checkpoints: int = Field(
        default=2, ge=1, le=1000, description="States that can be gone back to, in case the newest is damaged."
    )
    checkpoint_rate: float | None = Field(
        default=None, gt=0, description="Most that checkpoints write, in MiB per second; if omitted, no limit."
    )
    checkpoint_copy: str | None = Field(
        default=None,
        min_length=1,
        max_length=2_000,
        description="Address that checkpoints are copied to while training goes on, and that the same training on "
        "another machine goes on from: a folder such as /mnt/shared, or any of fsspec's whose library is installed, "
        "such as ftp://host/path or s3://bucket/path. Passwords belong into fsspec's configuration.",
    )

    @field_validator("checkpoint_copy")
    @classmethod
    def _holds_no_password(cls, address: str | None) -> str | None:
        if address is not None and has_password(address):
            raise ValueError(
                "give an address without a password, which would be kept with the request, and put that into fsspec's "
                "configuration (~/.config/fsspec) or its library's variables"
            )
        return address
