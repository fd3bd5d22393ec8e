"""Models in MLflow's registry: registered, checked before they are loaded, versioned."""

from shunter.tracking.registry.models import RegisteredModel, load_champion, register_model

__all__ = ["RegisteredModel", "load_champion", "register_model"]
