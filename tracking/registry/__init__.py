"""Model registry in MLflow: registration, checks before loading, and versions."""

from shunter.tracking.registry.models import RegisteredModel, load_champion, register_model

__all__ = ["RegisteredModel", "load_champion", "register_model"]
