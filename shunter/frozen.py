"""The base of the values that one step hands to the next."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that never changes and refuses fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
