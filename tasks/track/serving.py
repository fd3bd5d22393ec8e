"""The loader that models registered before `tracking` had its own floor name in MLflow."""

from tracking.registry.serving import _load_pyfunc

__all__ = ["_load_pyfunc"]
