"""Model registry in MLflow: registration, checks before loading, and versions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shunter.tracking.registry.models import load_champion

__all__ = ["load_champion"]


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` at its first use, because the import takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shunter.tracking.registry import models

    return getattr(models, name)
