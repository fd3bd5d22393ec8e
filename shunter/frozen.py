"""Base of the values that one step returns and the next one takes."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
