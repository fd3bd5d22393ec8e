"""Model registry in MLflow: registration, checks before loading, and versions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shunter.tracking.registry.models import RegisteredModel, load_champion, register_model

__all__ = ["RegisteredModel", "load_champion", "register_model"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is used, because commands that need none of them would wait for pandas and torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shunter.tracking.registry import models

    return getattr(models, name)
