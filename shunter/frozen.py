"""Base class of the immutable values that pipeline steps pass to each other."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable Pydantic model that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
